"""Ansible modules for roles, with functions for clusters that `kubectl` does not offer. Ansible finds them by name."""
