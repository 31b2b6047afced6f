"""Connection plugins of Ansible. Each file except this one is a plugin."""
