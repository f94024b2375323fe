"""Pictures of samples and predictions; they need matplotlib (the extra ``train``)."""
