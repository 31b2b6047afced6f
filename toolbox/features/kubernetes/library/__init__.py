"""Ansible modules that do on clusters what `kubectl` cannot do. Ansible finds a module by the name of its file."""
