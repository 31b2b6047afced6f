"""Tells people about runs: one module per way to send a message (see
`toolbox.ground.extensions.protocols.Notifier`).
"""
