"""`atomizer view`: a local page on which a model is queried, switched and labelled."""
