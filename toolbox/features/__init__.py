"""The features: each has the shape of a workspace, imports only the core, and can be left out."""
