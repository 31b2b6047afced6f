"""The manifests that are applied to a cluster are compared with the files in `manifests/`.

TOPGALLANT_TEST_WRITE_MANIFESTS=1 writes these files again after an intended change; read the difference before you
commit it.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.features.kubernetes.fakes import pod_security
from tests.features.kubernetes.servers import kubernetes
from toolbox.features.kubernetes.pods import description, manifests
from toolbox.features.kubernetes.pods.description import Pod
from toolbox.features.kubernetes.pods.manifests import JobRequest

FOLDER = Path(__file__).parent / "manifests"
ODD = "a 'b' \"c\" $HOME $(HOME) $$(HOME) \\ * \n é"
IMAGE = {"image": "registry.example/train:1"}
TPU = {"accelerator": "tpu-v5-lite-podslice", "topology": "2x4", "chips": 8}
SMALL = {"request_cpu": 1, "request_memory_gb": 2, "limit_cpu": 2, "limit_memory_gb": 4}
CELLS: dict[str, dict[str, Any]] = {
    "one_gpu": {},  # the pod of a target that sets only `image`
    "cpu_only": {
        "resources": {"gpu": None},
        "image_pull_policy": "IfNotPresent",
        "image_pull_secrets": ["registry"],
        "python": "/opt/venv/bin/python",
        "secrets": {"HF_TOKEN": {"name": "hugging-face", "key": "token"}},
        "shared_memory_gb": 16,
        "scratch_gb": 0.5,
        "node_selector": {"kubernetes.io/arch": "amd64"},
        "tolerations": [{"key": "dedicated", "operator": "Equal", "value": "tests", "effect": "NoSchedule"}],
        "service_account": "trainer",
        "priority_class": "low",
        "labels": {"team": "platform"},
        "annotations": {"example.com/note": "any text: of any kind"},
        "unreachable_seconds": 30,
        "volumes": [
            {"name": "data", "mount_path": "/data", "claim": "datasets", "read_only": True, "sub_path": "tiny"},
            {"name": "host", "mount_path": "/host", "host_path": "/mnt"},
            {"name": "settings", "mount_path": "/settings", "config_map": "settings"},
            {"name": "keys", "mount_path": "/keys", "secret": "keys"},
            {"name": "cache", "mount_path": "/cache", "empty_dir": {}},
            {"name": "share", "mount_path": "/share", "source": {"nfs": {"server": "nas", "path": "/share"}}},
        ],
    },
    "mig": {"resources": {**SMALL, "gpu": {"mig_1g_10gb": 2}}},
    "tpu": {"resources": SMALL, "tpu": TPU},
    "tpu_hosts": {"resources": SMALL, "tpu": {**TPU, "topology": "4x4", "chips": 4}, "hosts": 4},
    "tpu_slices": {
        "resources": SMALL,
        "tpu": {**TPU, "topology": "4x4", "chips": 4},
        "hosts": 4,
        "slices": 2,
        "queue": "tpus",
    },
    "kueue": {"queue": "tests"},
    "patched": {
        "patch": {
            "spec": {
                "template": {
                    "spec": {
                        "containers": [{"name": "workload", "env": [{"name": "NCCL_DEBUG", "value": "INFO"}]}],
                        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
                        "hostIPC": True,
                        "enableServiceLinks": None,
                    }
                }
            }
        },
    },
}
REQUEST = JobRequest(
    name="model-small-0123456789ab",
    namespace="tests",
    labels={
        "app.kubernetes.io/managed-by": "topgallant",
        "topgallant.dev/run": "run-1",
        "topgallant.dev/cell": "model-small",
    },
    owner={"apiVersion": "v1", "kind": "ConfigMap", "name": "run-1", "uid": "8a9ff5b4-5d1e-4ac4-b17e-3c2bd8f6b2a0"},
    directory="/topgallant/model-small-0123456789ab",
    command=("python3", "train.py", "--note=$(HOME)"),
    env={"STEPS": "10", "NOTE": ODD},
    secret_env={"API_KEY": ("run-1-secrets", "API_KEY")},
    limits={"run_seconds": 3600, "log_bytes": 1 << 26},
    agent="run-1",
    sources="model-small-0123456789ab",
    keeps_files=True,
    collect=("**",),
    deadline_seconds=7200.5,
    grace_seconds=10,
)


class Indented(yaml.SafeDumper):
    """Indents lists as `yamllint` requires."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002
        super().increase_indent(flow, False)

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002
        return True


def pod(**fields: Any) -> Pod:
    """Return a pod with an image and these fields."""
    return description.parse(IMAGE, fields)


def manifest(request: JobRequest = REQUEST, **fields: Any) -> dict[str, Any]:
    """Return the manifest of a cell whose pod has these fields."""
    return manifests.manifest(request, pod(**fields))


def containers(request: JobRequest = REQUEST, **fields: Any) -> dict[str, dict[str, Any]]:
    """Return the containers of a cell by their names."""
    found = manifest(request, **fields)["spec"]["template"]["spec"]["containers"]
    return {container["name"]: container for container in found}


def env(request: JobRequest = REQUEST, **fields: Any) -> dict[str, Any]:
    """Return the environment variables of the workload as the kubelet sets them."""
    found = containers(request, **fields)["workload"].get("env", [])
    return {item["name"]: arrived(item["value"]) if "value" in item else item["valueFrom"] for item in found}


def arrived(text: str) -> str:
    """Return a text as the kubelet expands it if no variable is defined."""
    return re.sub(r"\$(\$|\([^)]*\))", lambda match: "$" if match[1] == "$" else match[0], text)


@pytest.fixture
def cluster() -> Iterator[kubernetes.Cluster]:
    with kubernetes.for_tests() as found:
        yield found


@pytest.mark.parametrize("cell", CELLS)
def test_a_cell_has_the_manifest_of_its_file(cell: str) -> None:
    file = FOLDER / f"{cell}.yaml"
    if os.environ.get("TOPGALLANT_TEST_WRITE_MANIFESTS"):
        file.write_text(yaml.dump(manifest(**CELLS[cell]), Dumper=Indented, sort_keys=False, width=120))
    assert yaml.safe_load(file.read_text()) == manifest(**CELLS[cell])
    assert json.loads(json.dumps(manifest(**CELLS[cell]))) == manifest(**CELLS[cell])


def test_every_manifest_file_belongs_to_a_cell() -> None:
    assert {file.stem for file in FOLDER.iterdir()} == set(CELLS)


@pytest.mark.parametrize("cell", [cell for cell, fields in CELLS.items() if "slices" not in fields])
def test_a_real_server_accepts_the_manifest(cluster: kubernetes.Cluster, cell: str) -> None:
    request, fields = replace(REQUEST, namespace="default"), CELLS[cell]
    job = cluster.batch.create_namespaced_job("default", manifest(request, **fields), dry_run="All")
    assert job.spec.backoff_limit == 0
    if found := manifests.service(request, pod(**fields)):
        assert cluster.core.create_namespaced_service("default", found, dry_run="All").spec.cluster_ip == "None"


def test_a_job_has_labels_for_the_run_and_the_cell() -> None:
    name = manifests.job_name("run-1", "model=Small,batch=8/attempt-1")
    assert re.fullmatch(r"model-small-batch-8-attempt-[0-9a-f]{12}", name)
    assert manifests.job_name("run-1", "model=Small,batch=8/attempt-1") == name
    assert manifests.job_name("run-2", "model=Small,batch=8/attempt-1") != name
    assert manifests.job_name("run-1", "model=Small,batch=8/attempt-2") != name


@pytest.mark.parametrize("attempt", ["", "8", "---", "É", "x" * 300, "a" * 26 + "-b", "1x/y", "ends-"])
def test_the_name_of_a_job_is_a_valid_dns_label(attempt: str) -> None:
    name = manifests.job_name("run", attempt)
    assert re.fullmatch(r"[a-z]([a-z0-9]|-(?!-))*[a-z0-9]", name)
    assert len(f"{name}-slice-999-99999-abcde") <= 63


def test_the_kubelet_changes_no_text() -> None:
    request = replace(REQUEST, command=("$(PATH)", ODD, "$$", "$"), env={"ODD": ODD}, limits={"x": "$(A)"})
    workload = containers(request)["workload"]
    assert [arrived(text) for text in workload["args"]] == ["$(PATH)", ODD, "$$", "$"]
    assert env(request)["ODD"] == ODD
    assert [arrived(text) for text in workload["command"]][-2:] == ['{"x":"$(A)"}', "--"]


def test_a_text_that_is_not_utf8_is_refused() -> None:
    with pytest.raises(ValueError, match="not UTF-8"):
        manifest(replace(REQUEST, command=("\udcff",)))


def test_a_pod_needs_an_image() -> None:
    with pytest.raises(ValueError, match="the pod has no `image`"):
        manifests.manifest(REQUEST, Pod())


@pytest.mark.parametrize(
    ("fields", "variables", "value"),
    [
        ({"gpu": None}, {}, "-1"),
        ({"gpu": None}, {"CUDA_VISIBLE_DEVICES": "3"}, "3"),
        ({"gpu": 0}, {}, None),
    ],
)
def test_gpus_are_hidden_unless_the_cell_sets_the_variable(
    fields: dict[str, Any], variables: dict[str, str], value: str | None
) -> None:
    assert env(replace(REQUEST, env=variables), resources=fields).get("CUDA_VISIBLE_DEVICES") == value


def test_a_variable_of_the_cell_replaces_a_secret_of_its_pod() -> None:
    secrets = {"STEPS": {"name": "x", "key": "y"}}
    names = [item["name"] for item in containers(secrets=secrets)["workload"]["env"]]
    assert names == ["API_KEY", "NOTE", "STEPS"]
    assert env(secrets=secrets)["STEPS"] == "10"


def spec_of_pod(**fields: Any) -> dict[str, Any]:
    found: dict[str, Any] = manifest(**fields)["spec"]["template"]["spec"]
    return found


def test_a_pod_has_the_user_of_its_image_and_no_other_privilege() -> None:
    assert pod_security.violations(spec_of_pod()) == ["runAsNonRoot"] * 2
    assert spec_of_pod()["automountServiceAccountToken"] is False


def test_a_pod_with_a_user_meets_the_restricted_pod_security_standard() -> None:
    assert pod_security.violations(spec_of_pod(run_as_user=1000)) == []
    assert spec_of_pod(run_as_user=0)["securityContext"]["runAsUser"] == 0
    assert "runAsNonRoot" not in spec_of_pod(run_as_user=0)["securityContext"]


def test_a_patch_gives_a_workload_a_capability() -> None:
    container = {"name": "workload", "securityContext": {"capabilities": {"add": ["IPC_LOCK"]}}}
    found = containers(patch={"spec": {"template": {"spec": {"containers": [container]}}}})["workload"]
    assert found["securityContext"]["capabilities"] == {"drop": ["ALL"], "add": ["IPC_LOCK"]}


def test_a_cell_that_keeps_no_files_has_no_container_for_them() -> None:
    assert list(containers(replace(REQUEST, keeps_files=False))) == ["workload"]


def test_a_pod_without_resources_has_no_requests_and_no_limits() -> None:
    assert "resources" not in containers(resources=None)["workload"]
    assert containers(resources=None)["files"]["resources"]["limits"]["memory"] == "512Mi"


def test_unset_fields_are_not_in_the_manifest() -> None:
    request = replace(REQUEST, owner=None, sources=None, deadline_seconds=None, env={}, secret_env={})
    text = json.dumps(manifest(request))
    assert not re.search(r"null|ownerReferences|activeDeadlineSeconds|topgallant/sources|\"env\"", text)


@pytest.mark.parametrize(("deadline", "seconds"), [(0.2, 1), (0, 1), (59.01, 60), (60.0, 60)])
def test_a_deadline_is_rounded_up_to_whole_seconds(deadline: float, seconds: int) -> None:
    assert manifest(replace(REQUEST, deadline_seconds=deadline))["spec"]["activeDeadlineSeconds"] == seconds


@pytest.mark.parametrize(("fields", "needed"), [({}, False), ({"hosts": 2}, True), (CELLS["tpu_slices"], False)])
def test_only_a_job_with_several_hosts_has_a_service(fields: dict[str, Any], needed: bool) -> None:
    found = manifests.service(REQUEST, pod(**fields))
    assert (found is not None) is needed
    if found:
        assert found["metadata"]["name"] == manifest(**fields)["spec"]["template"]["spec"]["subdomain"]
        assert found["metadata"]["ownerReferences"] == [REQUEST.owner]
        assert found["spec"]["selector"] == {"job-name": REQUEST.name}


def test_a_job_and_its_service_are_one_document() -> None:
    job, service = manifest(hosts=2), manifests.service(REQUEST, pod(hosts=2))
    assert json.loads(manifests.document(job, None)) == job
    assert json.loads(manifests.document(job, service)) == {"apiVersion": "v1", "kind": "List", "items": [service, job]}


def test_a_number_that_json_cannot_carry_is_refused() -> None:
    with pytest.raises(ValueError, match="cannot be written as JSON: Integer exceeds 64-bit range"):
        manifests.document(manifest(patch={"spec": {"template": {"spec": {"activeDeadlineSeconds": 2**70}}}}), None)


def test_every_host_has_its_index_and_the_address_of_the_first_host() -> None:
    found = env(hosts=2)
    assert (found["TOPGALLANT_HOSTS"], found["TOPGALLANT_COORDINATOR"]) == ("2", f"{REQUEST.name}-0.{REQUEST.name}")
    assert "job-completion-index" in found["TOPGALLANT_HOST_INDEX"]["fieldRef"]["fieldPath"]
    assert not [name for name in env() if name.startswith("TOPGALLANT_")]


@pytest.mark.parametrize(
    ("patch", "field"),
    [
        ({"kind": "CronJob"}, "kind"),
        ({"metadata": {"name": "x"}}, "metadata.name"),
        ({"metadata": {"namespace": "x"}}, "metadata.namespace"),
        ({"metadata": {"ownerReferences": None}}, "metadata.ownerReferences"),
        ({"metadata": {"labels": {"topgallant.dev/run": "x"}}}, "metadata.labels.topgallant.dev/run"),
        ({"metadata": None}, "metadata.name"),
        ({"spec": {"backoffLimit": 3}}, "spec.backoffLimit"),
        ({"spec": {"parallelism": 2}}, "spec.parallelism"),
        ({"spec": {"completions": 2}}, "spec.completions"),
        ({"spec": {"completionMode": "Indexed"}}, "spec.completionMode"),
        ({"spec": {"podReplacementPolicy": "TerminatingOrFailed"}}, "spec.podReplacementPolicy"),
        ({"spec": {"podFailurePolicy": {"rules": []}}}, "spec.podFailurePolicy"),
        ({"spec": {"suspend": True}}, "spec.suspend"),
        ({"spec": {"template": {"metadata": {"labels": None}}}}, "spec.template.metadata.labels"),
        ({"spec": {"template": {"spec": {"restartPolicy": "Always"}}}}, "spec.template.spec.restartPolicy"),
        ({"spec": {"template": {"spec": {"containers": []}}}}, "spec.template.spec.containers.0.name"),
        ({"spec": {"template": {"spec": {"containers": [{"name": "workload", "command": ["sh"]}]}}}}, "command"),
        ({"spec": 3}, "spec"),
    ],
)
def test_a_patch_must_not_change_fields_that_topgallant_needs(patch: dict[str, Any], field: str) -> None:
    with pytest.raises(ValueError, match=f"`patch` must not change `.*{field}"):
        manifest(patch=patch)


def of_slices(**fields: Any) -> dict[str, Any]:
    """Return the spec of a JobSet whose slices have these fields."""
    return {"replicatedJobs": [{"name": "slice", **fields}]}


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        (of_slices(template={"spec": {"template": {"metadata": {"labels": None}}}}), r"0\.template\.spec.*\.labels"),
        (of_slices(template={"spec": {"parallelism": 8}}), r"0\.template\.spec\.parallelism"),
        (of_slices(template={"spec": {"podReplacementPolicy": None}}), r"0\.template\.spec\.podReplacementPolicy"),
        (of_slices(replicas=3), r"spec\.replicatedJobs\.0\.replicas"),
        ({"replicatedJobs": [{"name": "slice"}, {"name": "other"}]}, r"spec\.replicatedJobs\.1"),
        ({"suspend": False}, r"spec\.suspend"),
        ({"failurePolicy": {"maxRestarts": 1}}, r"spec\.failurePolicy"),
    ],
)
def test_a_patch_of_a_job_set_must_not_change_fields_that_topgallant_needs(spec: dict[str, Any], field: str) -> None:
    with pytest.raises(ValueError, match=f"`patch` must not change `.*{field}"):
        manifest(**CELLS["tpu_slices"], patch={"spec": spec})


def test_a_patch_adds_and_removes_fields() -> None:
    found = manifest(patch={"metadata": {"labels": {"a": "b"}}, "spec": {"ttlSecondsAfterFinished": None}})
    assert found["metadata"]["labels"] == {**REQUEST.labels, "a": "b"}
    assert "ttlSecondsAfterFinished" not in found["spec"]
