"""The gateway to the TPU API of Google Cloud. Only this package imports `google.*` and `grpc`.

`tpu_description.py` is the model of a TPU, `tpu_states.py` has the states of nodes and queued resources as frozen data,
and `api.py` sends the requests. `provisioning.py` creates TPUs, waits for them and deletes them, with the ledger.
`workers.py` reaches the workers by SSH.
"""
