//! The examples lie beside this folder.
