mod calls;
pub(crate) mod model;
