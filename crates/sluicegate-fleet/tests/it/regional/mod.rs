mod calls;
mod model;
