"""Token mixers other than attention: their kernels, and what each token adds to each other, exactly."""
