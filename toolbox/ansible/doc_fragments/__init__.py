"""Documentation fragments of Ansible. Each file except this one is a fragment."""
