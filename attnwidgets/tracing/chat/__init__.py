"""Chats: what a template renders, which message every character is from, and passages.

In: messages, tools, documents. Out: the text that the model reads, with its parts. Begin with `rendering.py`.
"""
