"""Token mixers other than attention: their kernels, and the exact vectors that tokens add to each other."""
