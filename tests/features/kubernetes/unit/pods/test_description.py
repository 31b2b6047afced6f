"""The fields of a cell's pod override those of its target, and wrong fields are refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolbox.features.kubernetes.pods import description
from toolbox.features.kubernetes.pods.description import Pod
from toolbox.ground.model.secrets import Secret

TPU = {"accelerator": "tpu-v5-lite-podslice", "topology": "2x4", "chips": 4}

NAMES = st.sampled_from(["name", "mountPath", "key", "a"])
VALUES = st.recursive(
    st.none() | st.integers() | st.sampled_from("xyz"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=12,
)
NAMED = st.lists(st.dictionaries(NAMES, st.sampled_from("xyz")), max_size=3)
MAPPINGS = st.dictionaries(NAMES, VALUES | NAMED, max_size=4)


def pod(**fields: Any) -> Pod:
    """Return the pod of a target with these fields, for a cell without fields."""
    return description.parse(fields, {})


def resources(**fields: Any) -> tuple[dict[str, str], dict[str, str]]:
    """Return the requests and the limits of a pod with these resources."""
    found = pod(resources=fields).resources
    assert found is not None
    return found.requests(), found.limits()


def test_a_pod_without_fields_has_the_default_resources() -> None:
    assert resources() == ({"cpu": "4", "memory": "32G"}, {"cpu": "8", "memory": "128G"})
    assert pod().devices == {"nvidia.com/gpu": 1}


@pytest.mark.parametrize(
    ("fields", "cpu"),
    [
        ({"request_cpu": 32}, ("32", "32")),  # this example of tgis-tester's documentation has no limit
        ({"limit_cpu": 2}, ("2", "2")),
        ({"limit_cpu": 16}, ("4", "16")),
        ({"request_cpu": 0.5, "limit_cpu": 1.25}, ("500m", "1250m")),
        ({"request_cpu": 8, "limit_cpu": 8}, ("8", "8")),
        ({"request_cpu": None}, (None, "8")),
        ({"limit_cpu": None}, ("4", None)),
    ],
)
def test_a_default_never_conflicts_with_a_configured_value(
    fields: dict[str, Any], cpu: tuple[str | None, str | None]
) -> None:
    requests, limits = resources(**fields)
    assert (requests.get("cpu"), limits.get("cpu")) == cpu
    assert (requests["memory"], limits["memory"]) == ("32G", "128G")


def test_memory_is_in_decimal_gigabytes() -> None:
    assert resources(request_memory_gb=0.5, limit_memory_gb=1.5)[0]["memory"] == "500M"


def test_a_request_above_its_limit_is_refused_with_both_values() -> None:
    with pytest.raises(ValueError, match="`request_cpu` 3 is more than `limit_cpu` 2"):
        description.parse({"resources": {"limit_cpu": 2}}, {"resources": {"request_cpu": 3}})


@pytest.mark.parametrize(
    ("gpu", "devices"),
    [
        (2, {"nvidia.com/gpu": 2}),
        (0, {}),
        (None, {}),
        ({"mig_1g_10gb": 1}, {"nvidia.com/mig-1g.10gb": 1}),
        ({"mig_2g_20gb": 2, "mig_1c_3g_20gb": 1}, {"nvidia.com/mig-2g.20gb": 2, "nvidia.com/mig-1c.3g.20gb": 1}),
        ({"mig_1g_10gb_me": 1}, {"nvidia.com/mig-1g.10gb.me": 1}),
    ],
)
def test_gpus_are_whole_gpus_or_mig_slices(gpu: object, devices: dict[str, int]) -> None:
    assert pod(resources={"gpu": gpu}).devices == devices


def test_gpus_of_another_vendor_have_another_resource_name() -> None:
    fields = {"gpu": 2, "gpu_resource": "amd.com/gpu", "extended": {"rdma/hca": 1}}
    assert pod(resources=fields).devices == {"amd.com/gpu": 2, "rdma/hca": 1}


@pytest.mark.parametrize(
    ("fields", "hides"),
    [
        ({"resources": {"gpu": None}}, True),
        ({"resources": {"gpu": 0}}, False),
        ({"resources": None}, False),
        ({}, False),
        ({"tpu": TPU, "hosts": 2}, False),
    ],
)
def test_gpus_are_hidden_if_gpu_is_null(fields: dict[str, Any], hides: bool) -> None:
    assert pod(**fields).hides_gpus is hides


def test_a_tpu_replaces_the_default_gpu() -> None:
    assert pod(tpu=TPU, hosts=2).devices == {"google.com/tpu": 4}
    assert pod(tpu=TPU, hosts=2, resources=None).devices == {"google.com/tpu": 4}


def test_a_cell_overrides_its_target_field_by_field() -> None:
    volume = {"name": "data", "mount_path": "/data"}
    target = {"image": "a", "resources": {"gpu": 2}, "volumes": [{**volume, "claim": "x"}], "labels": {"a": "1"}}
    cell = {"resources": {"limit_cpu": 9}, "volumes": [{"name": "data", "read_only": True}], "labels": {"b": "2"}}
    got = description.parse(target, cell)
    assert (got.image, got.devices, got.labels) == ("a", {"nvidia.com/gpu": 2}, {"a": "1", "b": "2"})
    assert (got.volumes[0].claim, got.volumes[0].read_only) == ("x", True)


def test_a_null_of_a_cell_removes_the_field_of_its_target() -> None:
    volume = {"name": "data", "mount_path": "/data"}
    target = {"queue": "q", "hosts": 2, "resources": {"gpu": 1}, "labels": {"a": "1"}, "volumes": [volume]}
    nulls = {"queue": None, "hosts": None, "resources": None, "labels": {"a": None}, "volumes": None}
    assert description.parse(target, nulls) == Pod(resources=None)


def test_a_cell_changes_the_source_of_a_volume_with_a_null_for_the_old_source() -> None:
    target = {"volumes": [{"name": "data", "mount_path": "/data", "claim": "x"}]}
    cell = {"volumes": [{"name": "data", "claim": None, "host_path": "/disk"}]}
    assert description.parse(target, cell).volumes[0].host_path == "/disk"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"imgae": "x"}, "`imgae` is an unknown field: did you mean image"),
        ({"resources": {"gpus": 1}}, "`resources.gpus` is an unknown field: did you mean gpu"),
        ({"volumes": [{"nam": "x"}]}, r"`volumes\[0\].nam` is an unknown field: did you mean name"),
        ({"image": "two words"}, "`image` must match pattern .*, not 'two words'"),
        ({"image_pull_policy": "always"}, "`image_pull_policy`"),
        ({"image_pull_secrets": ["Not_A_Name"]}, r"`image_pull_secrets\[0\]`: 'Not_A_Name' is not a name"),
        ({"python": ""}, "`python`"),
        ({"resources": 3}, "`resources` must be a mapping, not 3"),
        ({"resources": {"limit_cpu": 0}}, "`resources.limit_cpu` must be greater than 0, not 0"),
        ({"resources": {"limit_cpu": True}}, "`resources.limit_cpu` must be .*, not true"),
        ({"resources": {"limit_cpu": float("inf")}}, "finite"),
        ({"resources": {"limit_cpu": 1.0001}}, "more than three decimal places"),
        ({"resources": {"gpu": -1}}, "`resources.gpu`: -1 is not a number of GPUs"),
        ({"resources": {"gpu": True}}, "`resources.gpu`: true is not a number of GPUs"),
        ({"resources": {"gpu": {}}}, "`resources.gpu`: {} is not a number of GPUs"),
        ({"resources": {"gpu": {"mig_1g_10gb": 1.5}}}, "is not a number of GPUs"),
        ({"resources": {"gpu": {"mig-1g.10gb": 1}}}, "'mig-1g.10gb' is not a MIG slice such as mig_1g_10gb"),
        ({"resources": {"gpu_resource": "gpu"}}, "'gpu' is not a resource such as nvidia.com/gpu"),
        ({"resources": {"gpu": {"mig_1g_10gb": 1}, "extended": {"nvidia.com/gpu": 1}}}, "is set by `gpu`"),
        ({"resources": {"gpu": 1, "extended": {"nvidia.com/mig-1g.10gb": 1}}}, "is set by `gpu`"),
        ({"resources": {"gpu_resource": "amd.com/gpu", "extended": {"amd.com/gpu": 1}}}, "is set by `gpu`"),
        ({"resources": {"extended": {"google.com/tpu": 4}}}, "is set by the field `tpu`"),
        ({"resources": {"extended": {"cpu": 4}}}, "'cpu' is not a resource"),
        ({"secrets": {"NO-NAME": {"name": "x", "key": "y"}}}, "'NO-NAME' is not a name of a variable"),
        ({"secrets": {"TOPGALLANT_HOSTS": {"name": "x", "key": "y"}}}, "`TOPGALLANT_HOSTS` is reserved"),
        ({"secrets": {"A": {"name": "x"}}}, "`secrets.A.key`: Field required"),
        ({"secrets": {"A": {"name": "x", "key": "../y"}}}, "'../y' is not a key of a Secret"),
        ({"shared_memory_gb": -1}, "`shared_memory_gb`"),
        ({"node_selector": {"a/b/c": "x"}}, "'a/b/c' is not a key"),
        ({"node_selector": {"a": "x" * 64}}, "of at most 63 characters"),
        ({"labels": {"a": "x y"}}, "`labels.a`: 'x y' is not a value of a label"),
        ({"labels": {"a": 1}}, "`labels.a` must be a valid string, not 1"),
        ({"labels": {"a": Secret("hidden")}}, r"`labels.a` must be a valid string, not \*\*\*"),
        ({"labels": {"topgallant.dev/run": "x"}}, "the label `topgallant.dev/run` is reserved"),
        ({"labels": {"app.kubernetes.io/managed-by": "x"}}, "is reserved"),
        ({"labels": {"kueue.x-k8s.io/queue-name": "x"}}, "is set by the field `queue`"),
        ({"annotations": {"Not A Key": "x"}}, "'Not A Key' is not a key"),
        ({"tolerations": [{"seconds": 3}]}, r"`tolerations\[0\].seconds` is an unknown field: .*tolerationSeconds"),
        ({"tolerations": [{"effect": "Never"}]}, r"`tolerations\[0\].effect`"),
        ({"service_account": "a_b"}, "`service_account`: 'a_b' is not a name"),
        ({"queue": "a.b"}, "`queue`: 'a.b' is not a name"),
        ({"hosts": 0}, "`hosts` must be greater than or equal to 1, not 0"),
        ({"hosts": "2"}, "`hosts` must be a valid integer, not '2'"),
        ({"slices": 2}, "`slices` needs a `tpu`: without one"),
        ({"tpu": {**TPU, "topology": "2by4"}}, "'2by4' is not a topology"),
        ({"tpu": TPU}, "`tpu.topology` 2x4 has 8 chips, but `hosts` 1 with `tpu.chips` 4 each have 4"),
        ({"tpu": TPU, "hosts": 2, "resources": {"gpu": 1}}, "`tpu` and `resources.gpu` are both set"),
        ({"ttl_seconds": -1}, "`ttl_seconds`"),
        ({"patch": {"spec": {1, 2}}}, "`patch.spec"),
        ({"labels": {"a": "x y"}, "hosts": 0}, "`labels.a`: .*; `hosts`"),
    ],
)
def test_a_wrong_field_is_refused_and_named(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        pod(**fields)
    assert "hidden" not in str(caught.value)


def test_a_pod_with_several_mistakes_names_them_all() -> None:
    with pytest.raises(ValueError, match="is an unknown field") as caught:
        pod(
            imgae="x",
            hosts=0,
            resources={"gpus": 1, "limit_cpu": -1},
            secrets={"TOKEN": {"nmae": "hf", "key": "token"}},
        )
    named = ("`imgae`", "`hosts`", "`resources.gpus`", "`resources.limit_cpu`", "`secrets.TOKEN.nmae`")
    assert [field for field in named if field not in str(caught.value)] == []
    assert "`secrets.TOKEN.nmae` is an unknown field: did you mean name" in str(caught.value)


def test_a_pod_whose_fields_do_not_fit_together_names_each_conflict() -> None:
    volumes = [{"name": "one", "mount_path": "/one", "claim": "x"}] * 2
    with pytest.raises(ValueError, match="the name one") as caught:
        pod(volumes=volumes, slices=2)
    assert "the mount_path /one" in str(caught.value)
    assert "`slices` needs a `tpu`" in str(caught.value)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "set exactly one of host_path, claim, .*, not none of them"),
        ({"claim": "x", "host_path": "/y"}, "not host_path and claim"),
        ({"host_path": "relative"}, "host_path"),
        ({"source": {"nfs": {}, "csi": {}}}, "source"),
        ({"empty_dir": {"size": "1G"}}, "empty_dir"),
        ({"claim": "x", "name": "attempt"}, "the volume `attempt` is reserved"),
        ({"claim": "x", "name": "a.b"}, "'a.b' is not a name"),
        ({"claim": "x", "mount_path": "relative"}, "must be an absolute path"),
        ({"claim": "x", "mount_path": "/"}, "must be an absolute path"),
        ({"claim": "x", "mount_path": "/a/../topgallant"}, "must be an absolute path"),
        ({"claim": "x", "mount_path": "/topgallant"}, "/topgallant is reserved"),
        ({"claim": "x", "mount_path": "/topgallant/x"}, "like all paths below /topgallant"),
        ({"claim": "x", "sub_path": "a/../../b"}, "must be a relative path"),
        ({"claim": "x", "read_only": "yes"}, "read_only"),
    ],
)
def test_an_invalid_volume_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        pod(volumes=[{"name": "data", "mount_path": "/data", **fields}])


def test_two_volumes_need_two_names_and_two_mount_paths() -> None:
    one, two = ({"name": name, "mount_path": f"/{name}", "claim": "x"} for name in ("one", "two"))
    assert len(pod(volumes=[one, two]).volumes) == 2
    with pytest.raises(ValueError, match="two have the mount_path /one"):
        pod(volumes=[one, {**two, "mount_path": "/one"}])
    with pytest.raises(ValueError, match="two have the name one"):
        pod(volumes=[one, {**two, "name": "one"}])
    with pytest.raises(ValueError, match="two have the mount_path /dev/shm"):
        pod(volumes=[{**one, "mount_path": "/dev/shm"}], shared_memory_gb=1)


@pytest.mark.parametrize(("target", "cell"), [("busybox", {}), ({}, ["image"])])
def test_a_description_that_is_not_a_mapping_is_refused(target: Any, cell: Any) -> None:
    with pytest.raises(ValueError, match="does not describe a pod"):
        description.parse(target, cell)


def test_mounts_are_merged_by_path_and_other_lists_by_name_or_key() -> None:
    mounts = [{"name": "data", "mountPath": "/a"}, {"name": "data", "mountPath": "/b"}]
    over = [{"name": "data", "mountPath": "/b", "readOnly": True}, {"name": "data", "mountPath": "/c"}]
    assert description.merged({"m": mounts}, {"m": over}) == {"m": [mounts[0], *over]}
    assert description.merged({"e": [{"name": "A", "value": "1"}]}, {"e": [{"name": "B"}]})["e"][1] == {"name": "B"}
    assert description.merged({"t": [{"key": "a"}]}, {"t": [{"key": "b"}]}) == {"t": [{"key": "a"}, {"key": "b"}]}


@pytest.mark.parametrize("over", [[], [{"key": "x"}], [{"name": "A"}, {"name": "A"}], None, 3])
def test_a_list_is_replaced_by_a_value_without_unique_names(over: object) -> None:
    assert description.merged({"e": [{"name": "A"}]}, {"e": over}) == {"e": over}


@given(MAPPINGS)
def test_merging_with_an_empty_mapping_changes_nothing(mapping: dict[str, Any]) -> None:
    assert description.merged(mapping, {}) == mapping
    assert description.merged({}, mapping) == mapping
    assert description.merged(mapping, mapping) == mapping


@given(MAPPINGS, MAPPINGS)
def test_merging_the_same_mapping_twice_changes_nothing(base: dict[str, Any], over: dict[str, Any]) -> None:
    once = description.merged(base, over)
    assert description.merged(once, over) == once
    assert set(once) == set(base) | set(over)
