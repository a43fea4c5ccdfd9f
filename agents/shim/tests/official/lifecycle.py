"""Whole lives of tasks and jobs, driven by the clients of the official server.

usage: lifecycle.py MODE SHIM RUNNER_PORT [IMAGE]

MODE is `host`, `bridge` or `process`; SHIM a TCP port or the path of a Unix socket; RUNNER_PORT
the runner's port in the container. Fails with a traceback.
"""

import io
import sys
import tarfile
import time
import uuid
from datetime import datetime, timezone
from pathlib import Path

from dstack._internal.core.models.common import NetworkMode
from dstack._internal.core.models.configurations import TaskConfiguration
from dstack._internal.core.models.files import FileArchiveMapping
from dstack._internal.core.models.repos.virtual import VirtualRunRepoData
from dstack._internal.core.models.resources import ResourcesSpec
from dstack._internal.core.models.runs import (
    ClusterInfo,
    Job,
    JobSpec,
    JobStatus,
    JobSubmission,
    JobTerminationReason,
    Requirements,
    Run,
    RunSpec,
    RunStatus,
)
from dstack._internal.core.models.volumes import InstanceMountPoint
from dstack._internal.server.services.runner.client import (
    RunnerClient,
    RunnerResponseStatusError,
    ShimClient,
    ShimResponseStatusError,
    healthcheck_response_to_instance_check,
    instance_info_response_to_gpu_driver,
)

DEADLINE = 60


def eventually(what, look):
    end = time.monotonic() + DEADLINE
    while time.monotonic() < end:
        value = look()
        if value:
            return value
        time.sleep(0.1)
    raise AssertionError(f"in vain: {what}")


def refused(status, text, call, *args, **kwargs):
    try:
        call(*args, **kwargs)
    except (ShimResponseStatusError, RunnerResponseStatusError) as error:
        assert error.status_code == status, error
        assert text in str(error), error
        return
    raise AssertionError(f"{call.__name__} was not refused")


class World:
    def __init__(self, mode, shim, runner_port, image):
        self.mode = mode
        self.runner_port = runner_port
        self.image = image
        self.shim_address = shim
        self.shim = ShimClient.from_address(shim)
        self.mount = Path(f"/tmp/official-{uuid.uuid4()}")

    # The shim

    def submit(self, **changes):
        task_id = uuid.uuid4()
        config = dict(
            task_id=task_id,
            name=f"official-{self.mode}-0-0",
            registry_username="",
            registry_password="",
            image_name=self.image,
            container_user="root",
            privileged=False,
            gpu=None if self.mode == "host" else 0,
            cpu=0.5 if self.mode == "bridge" else None,
            memory=0.25 if self.mode == "bridge" else None,
            shm_size=None,
            network_mode=NetworkMode.BRIDGE if self.mode == "bridge" else NetworkMode.HOST,
            volumes=[],
            volume_mounts=[],
            instance_mounts=[],
            gpu_devices=[],
            host_ssh_user="",
            host_ssh_keys=[],
            container_ssh_keys=[],
            instance_id="i",
        )
        config.update(changes)
        self.shim.submit_task(**config)
        return task_id, config

    def task_when(self, task_id, status):
        def look():
            task = self.shim.get_task(task_id)
            if task.status.value in (status, "terminated"):
                return task
            return None

        task = eventually(f"task is {status}", look)
        assert task.status.value == status, task
        return task

    def runner_of(self, task):
        port = self.runner_port
        if self.mode == "host":
            assert task.ports == [], task
        else:
            port = next(p.host for p in task.ports if p.container == self.runner_port)
        client = RunnerClient.from_address(port)
        eventually("the runner answers", client.healthcheck)
        assert client.is_code_upload_optional()
        return client

    def start_task(self, **changes):
        task_id, _ = self.submit(**changes)
        return task_id, self.runner_of(self.task_when(task_id, "running"))

    def end_task(self, task_id, reason="terminated_by_user"):
        self.shim.terminate_task(task_id, reason, "why", timeout=0)
        task = self.shim.get_task(task_id)
        assert (task.status.value, task.termination_reason) == ("terminated", reason), task
        # The first reason stays.
        self.shim.terminate_task(task_id, "scaled_down", timeout=0)
        assert self.shim.get_task(task_id).termination_reason == reason
        self.shim.remove_task(task_id)
        refused(404, "", self.shim.get_task, task_id)
        assert all(t.id != str(task_id) for t in self.shim.list_tasks().tasks)

    # The runner

    def run_job(self, runner, commands, archives=(), code=None, quota=None, **spec):
        now = datetime.now(timezone.utc)
        submission = JobSubmission(
            id=uuid.uuid4(),
            submission_num=0,
            submitted_at=now,
            last_processed_at=now,
            status=JobStatus.PULLING,
        )
        job_spec = JobSpec(
            job_num=0,
            job_name="official-0-0",
            commands=["/bin/sh", "-i", "-c", commands],
            env={"OWN": "it's"},
            image_name=self.image,
            requirements=Requirements(resources=ResourcesSpec()),
            repo_data=VirtualRunRepoData(),
            file_archives=[FileArchiveMapping(id=i, path=path) for i, path, _ in archives],
            **spec,
        )
        run_spec = RunSpec(
            run_name="official",
            repo_id="virtual",
            repo_data=VirtualRunRepoData(),
            configuration=TaskConfiguration(commands=[commands]),
        )
        job = Job(job_spec=job_spec, job_submissions=[submission])
        run = Run(
            id=uuid.uuid4(),
            project_name="main",
            user="admin",
            submitted_at=now,
            last_processed_at=now,
            status=RunStatus.PROVISIONING,
            run_spec=run_spec,
            jobs=[job],
        )
        import dstack._internal.server.settings as settings

        settings.SERVER_LOG_QUOTA_PER_JOB_HOUR = quota or 0
        cluster = ClusterInfo(job_ips=["127.0.0.1"], master_job_ip="127.0.0.1", gpus_per_job=0)
        refused(409, "Conflict", runner.run_job)
        runner.submit_job(run, job, cluster, {}, None, instance_env={"FLEET": "f"})
        for archive_id, _, content in archives:
            runner.upload_archive(archive_id, content)
        if code is not None:
            runner.upload_code(code)
        info = runner.run_job()
        refused(409, "Conflict", runner.submit_job, run, job, cluster, {}, None)
        return info

    def outcome(self, runner, enough=lambda log: False):
        log, states, timestamp = b"", [], 0
        end = time.monotonic() + DEADLINE
        while time.monotonic() < end:
            pulled = runner.pull(timestamp)
            for event in pulled.job_logs:
                assert timestamp < event.timestamp <= pulled.last_updated
                log += event.message
            states += pulled.job_states
            assert pulled.last_updated >= timestamp
            timestamp = pulled.last_updated
            if not pulled.has_more or enough(log):
                return states, log.decode()
            time.sleep(0.1)
        raise AssertionError(f"the job does not end: {states} {log!r}")


def tar(name, content):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        info = tarfile.TarInfo(name)
        info.size = len(content)
        archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def machine(world):
    shim = world.shim
    health = shim.healthcheck(unmask_exceptions=True)
    assert health.service == "dstack-shim", health
    assert shim.get_version_tuple() >= (0, 21, 3)
    check = healthcheck_response_to_instance_check(health, shim.get_instance_health())
    assert check.reachable and check.message is None, check
    assert instance_info_response_to_gpu_driver(shim.get_instance_info()) is None
    assert shim.get_task_metrics(uuid.uuid4()) is None
    components = shim.get_components()
    for component in (components.runner, components.shim):
        assert component.status.value == "installed", component
        assert component.version == shim.get_version_string(), component
    assert shim.is_safe_to_restart()
    refused(404, "", shim.remove_task, uuid.uuid4())
    refused(404, "", shim.stop)


def done(world):
    """A job with files, environment and a good end."""
    mounts = []
    if world.mode != "process":
        mounts = [InstanceMountPoint(instance_path=str(world.mount), path="/mnt/data")]
    task_id, runner = world.start_task(instance_mounts=mounts)
    assert runner.healthcheck().service == "dstack-runner"
    archive = uuid.uuid4()
    place = "~/up/renamed.txt"
    info = world.run_job(
        runner,
        "cat ~/up/renamed.txt code.txt; echo $OWN $FLEET $DSTACK_RUN_NAME $DSTACK_NODES_NUM;"
        " test ! -d /mnt/data || echo kept > /mnt/data/file",
        archives=[(archive, place, tar("local.txt", b"archived\n"))],
        code=tar("code.txt", b"coded\n"),
        working_dir="/workflow",
        repo_dir="/workflow",
    )
    assert info.username == "root", info
    states, log = world.outcome(runner)
    # Before it an interactive shell may introduce itself.
    assert log.endswith("archived\ncoded\nit's f official 1\n"), log
    assert [s.state.value for s in states] == ["running", "done"], states
    assert states[-1].exit_status == 0
    metrics = runner.get_metrics()
    assert metrics is None or metrics.memory_usage_bytes > 0
    if mounts:
        assert (world.mount / "file").read_text() == "kept\n"
    refused(409, "cannot remove task", world.shim.remove_task, task_id)
    world.end_task(task_id)


def failed(world):
    task_id, runner = world.start_task()
    world.run_job(runner, "exit 7")
    states, _ = world.outcome(runner)
    assert (states[-1].state.value, states[-1].exit_status) == ("failed", 7), states
    world.end_task(task_id, "container_exited_with_error")


def stopped(world):
    task_id, runner = world.start_task()
    world.run_job(runner, "echo ready; sleep 1000")
    world.outcome(runner, lambda log: b"ready" in log)
    runner.stop()
    runner.stop()
    states, _ = world.outcome(runner)
    assert states[-1].state.value == "terminated" and states[-1].termination_reason == "", states
    world.end_task(task_id)


def limited(world):
    for spec, quota, reason in (
        (dict(max_duration=1), None, JobTerminationReason.MAX_DURATION_EXCEEDED),
        (dict(), 1000, JobTerminationReason.LOG_QUOTA_EXCEEDED),
    ):
        task_id, runner = world.start_task()
        world.run_job(runner, "seq 1000; sleep 1000", quota=quota, **spec)
        states, _ = world.outcome(runner)
        assert states[-1].termination_reason == reason.value, states
        world.end_task(task_id)


def unknown_user(world):
    if world.mode == "process":
        return
    from dstack._internal.core.models.unix import UnixUser

    task_id, runner = world.start_task()
    assert world.run_job(runner, "true", user=UnixUser(username="nosuch")) is None
    states, _ = world.outcome(runner)
    assert states[-1].termination_reason == JobTerminationReason.EXECUTOR_ERROR.value, states
    world.end_task(task_id)


def no_start(world):
    """Reasons that the shim finds itself."""
    task_id, config = world.submit(gpu=3)
    task = world.task_when(task_id, "terminated")
    assert task.termination_reason == JobTerminationReason.EXECUTOR_ERROR.value, task
    refused(409, "already submitted", world.shim.submit_task, **config)
    world.shim.remove_task(task_id)
    if world.mode != "process":
        task_id, _ = world.submit(image_name="127.0.0.1:1/no/such:1")
        task = world.task_when(task_id, "terminated")
        assert task.termination_reason == JobTerminationReason.CREATING_CONTAINER_ERROR.value, task
        assert task.termination_message.startswith("pullImage error: "), task
        world.shim.remove_task(task_id)


def isolated(world):
    """What runs in a container of its own network does not reach the shim."""
    if world.mode != "bridge" or not isinstance(world.shim_address, int):
        return
    task_id, runner = world.start_task()
    port = world.shim_address
    world.run_job(
        runner,
        "gw=$(ip route | awk '/default/ {print $3}'); "
        # Who hangs up before the answer gets none.
        "ask() { (printf 'GET /api/healthcheck HTTP/1.0\\r\\n\\r\\n'; sleep 1) | nc -w 3 $1 $2; }; "
        f"for host in 127.0.0.1 $gw; do ask $host {port}; done; echo asked $gw; ask 127.0.0.1 10999",
    )
    _, log = world.outcome(runner)
    # The runner answers the same question, so it was asked well.
    assert "dstack-shim" not in log and "asked 1" in log and "dstack-runner" in log, log
    world.end_task(task_id)


def main():
    mode, shim, runner_port = sys.argv[1:4]
    shim = int(shim) if shim.isdigit() else Path(shim)
    image = sys.argv[4] if len(sys.argv) > 4 else "dstack-test/small:1"
    world = World(mode, shim, int(runner_port), image)
    try:
        for part in (machine, done, failed, stopped, limited, unknown_user, no_start, isolated):
            started = time.monotonic()
            part(world)
            print(f"{part.__name__}: {time.monotonic() - started:.1f} s", flush=True)
        # Tasks of a shim that is shut down go on; this one has none.
        assert world.shim.shutdown(force=False)
        eventually("the shim has ended", lambda: world.shim.healthcheck() is None)
    finally:
        if world.mount.exists():
            for file in world.mount.iterdir():
                file.unlink()
            world.mount.rmdir()


main()
