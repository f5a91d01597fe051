"""Scores over data sets of any size: shard by shard, kept on disk by content, by any number of workers."""
