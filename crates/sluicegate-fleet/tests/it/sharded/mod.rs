mod calls;
mod load;
mod model;
mod settings;
