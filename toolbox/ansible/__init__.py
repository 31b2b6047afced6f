"""Ansible: the one way in which a toolbox command runs a role.

`roles.py` holds `@role`; `playbook.py` runs the play and is the only module that imports ansible-runner. `modules/`
holds Ansible modules of ours.
"""
