"""Scores over data sets of any size: by shards, kept on disk by content, with any number of workers."""
