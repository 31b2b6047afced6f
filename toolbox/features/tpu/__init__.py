"""TPU VMs of Google Cloud: cells on them, the commands `tpu`, and the gateway to the TPU API.

`tpu_description.py` is the model of a TPU, `tpu_states.py` has the states of nodes and queued resources as frozen data,
and `api.py` sends the requests. `provisioning.py` creates TPUs, waits for them and deletes them, with the ledger.
`workers.py` reaches the workers by SSH.
"""
