"""Runs the Ansible roles of toolbox commands.

`roles.py` contains `@role`. `playbook.py` runs the play; no other module imports ansible-runner. `modules/` contains
Topgallant's own Ansible modules.
"""
