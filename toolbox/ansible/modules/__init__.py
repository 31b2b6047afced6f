"""Ansible modules for roles that need more from a cluster than `kubectl` offers. Ansible finds them by file name."""
