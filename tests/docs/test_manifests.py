"""The manifests for Kubernetes and the compose file: their configurations are valid, and what they
refer to is there.
"""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from otel_eval.app.checking import check
from otel_eval.config import load
from tests.support.manifests import FOLDER, configurations, objects_of


@pytest.mark.parametrize("place", configurations("eval.yaml"))
def test_the_configuration_of_a_manifest_is_valid(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAGE_TOKEN", "s3cret")
    path = tmp_path / "eval.yaml"
    text = configurations("eval.yaml")[place]
    path.write_text(text.replace("/var/lib/otel-eval", str(tmp_path)), encoding="utf-8")
    check(load(path))


@pytest.mark.parametrize(
    "path", sorted(FOLDER.glob("kubernetes/*.yaml")), ids=lambda each: each.name
)
def test_a_manifest_refers_to_what_it_has(path: Path) -> None:
    """Config maps, volumes, ports of probes and of services, and labels of selectors."""
    objects = objects_of(path)
    maps = {each["metadata"]["name"] for each in objects if each["kind"] == "ConfigMap"}
    pods = {
        each["metadata"]["name"]: each for each in objects if "template" in each.get("spec", {})
    }
    ports: dict[str, set[int]] = {}
    for each in pods.values():
        spec = each["spec"]["template"]["spec"]
        labels = each["spec"]["template"]["metadata"]["labels"]
        assert each["spec"]["selector"]["matchLabels"] == labels
        claims = each["spec"].get("volumeClaimTemplates", [])
        volumes = {volume["name"] for volume in spec["volumes"]}
        volumes |= {claim["metadata"]["name"] for claim in claims}
        assert {one["configMap"]["name"] for one in spec["volumes"] if "configMap" in one} <= maps
        for container in spec["containers"]:
            named = {port["name"]: port["containerPort"] for port in container.get("ports", [])}
            ports.setdefault(labels["app"], set()).update(named.values())
            assert {one["name"] for one in container.get("volumeMounts", [])} <= volumes
            for probe in ("livenessProbe", "readinessProbe"):
                assert container.get(probe, {"httpGet": {"port": None}})["httpGet"]["port"] in {
                    None,
                    *named,
                }
    for each in objects:
        if each["kind"] == "Service":
            wanted = {port["port"] for port in each["spec"]["ports"]}
            assert wanted <= ports[each["spec"]["selector"]["app"]]
        if each["kind"] == "HorizontalPodAutoscaler":
            assert each["spec"]["scaleTargetRef"]["name"] in pods


def test_the_compose_file_has_the_published_form_and_its_files_are_there() -> None:
    path = FOLDER / "compose/compose.yaml"
    compose: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    schemas = resources.files("check_jsonschema") / "builtin_schemas" / "vendor"
    schema = json.loads((schemas / "compose-spec.json").read_text(encoding="utf-8"))
    jsonschema.validate(compose, schema)
    for service in compose["services"].values():
        for volume in service["volumes"]:
            source = volume.split(":")[0]
            assert source in compose["volumes"] or (path.parent / source).exists(), volume
