"""Messages about runs: the notifiers, and the gateway to the webhooks to which they send."""
