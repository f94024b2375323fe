"""The page of `atomizer view`, on which a model is queried, switched and labelled."""
