"""Logs of other programs as messages for `aw.trace`, read without their libraries.

In: files of OpenAI's and Anthropic's APIs, Inspect and OpenTelemetry. Out: one list of messages, and whose
model wrote it. Begin with `reading.py`.
"""
