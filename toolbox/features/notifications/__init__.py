"""The gateway to webhooks: sends requests to the URLs that notifiers are configured with."""
