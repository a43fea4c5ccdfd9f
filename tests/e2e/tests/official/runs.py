"""Sections 5 to 7 and 9, runs: planned, applied, listed, stopped, deleted; and their logs."""

import base64

from support import *

from dstack._internal.server.schemas.logs import PollLogsRequest

api = client()
plan = api.runs.get_plan(PROJECT, run_spec("hello", ["echo one", "echo two"]), max_offers=1)
check("the plan's user", (plan.project_name, plan.user, plan.action.value), (PROJECT, "admin", "create"))
check("one offer of several", (len(plan.job_plans[0].offers), plan.job_plans[0].total_offers > 1), (1, True))
check("echo", (plan.run_spec.ssh_key_pub, plan.run_spec.configuration.priority), (None, None))
check("the key", plan.effective_run_spec.ssh_key_pub, api.users.get_my_user().ssh_public_key)
check("the priority", plan.effective_run_spec.configuration.priority, 0)
run = api.runs.apply_plan(PROJECT, plan)
check("submitted", (run.status.value, run.run_spec.run_name, run.user), ("submitted", "hello", "admin"))
run = finished(api, "hello")
check("its end", (run.status.value, run.termination_reason), ("done", "all_jobs_done"))
submission = run.latest_job_submission
check("the job", (submission.status_message, submission.exit_status), ("exited (0)", 0))
check("by id", api.runs.get(PROJECT, run_id=run.id).id, run.id)


def lines(descending=False, limit=100):
    body = dict(run_name="hello", job_submission_id=submission.id, descending=descending, limit=limit)
    got, token = [], None
    while True:
        page = api.logs.poll(PROJECT, PollLogsRequest(**body, next_token=token))
        got += [base64.b64decode(it.message).decode().strip() for it in page.logs]
        check("the source", {it.log_source.value for it in page.logs} - {"stdout"}, set())
        token = page.next_token
        if token is None:
            return got


text = "\n".join(lines()).split()
check("the log", text, ["one", "two"])
check("by pages of one", "\n".join(lines(limit=1)).split(), text)
check("from its end", "\n".join(reversed(lines(descending=True))).split(), text)
body = PollLogsRequest(run_name="hello", job_submission_id=submission.id, next_token="x")
refused("a bad token", ServerClientError, "Invalid next_token", lambda: api.logs.poll(PROJECT, body))
nothing = PollLogsRequest(run_name="nope", job_submission_id=stranger_id())
check("no such log", api.logs.poll(PROJECT, nothing).logs, [])
diagnose = PollLogsRequest(run_name="hello", job_submission_id=submission.id, diagnose=True)
holds("the runner's own log", api.logs.poll(PROJECT, diagnose).logs is not None)

failed = submit(api, run_spec("three", ["exit 3"]))
failed = finished(api, "three")
check("a failure", (failed.status.value, failed.termination_reason), ("failed", "job_failed"))
check("its code", (failed.latest_job_submission.status_message, failed.latest_job_submission.exit_status), ("exited (3)", 3))
nowhere = run_spec("nowhere", ["true"], resources={"cpu": "x86:512..", "memory": "100MB..", "disk": "1GB.."})
check("no offers", api.runs.get_plan(PROJECT, nowhere).job_plans[0].total_offers, 0)
submit(api, nowhere)
check("no capacity", finished(api, "nowhere").latest_job_submission.status_message, "no capacity")

submit(api, run_spec("long", ["sleep 600"]))
wait("running", lambda: api.runs.get(PROJECT, "long").status.value == "running")
again = api.runs.get_plan(PROJECT, run_spec("long", ["sleep 600"]))
check("as it is", (again.action.value, again.current_resource.run_spec.run_name), ("update", "long"))
check("no new deployment yet", again.current_resource.deployment_num, 0)
changed = run_spec("long", ["sleep 600"], priority=50)
check("in place", api.runs.get_plan(PROJECT, changed).action.value, "update")
updated = submit(api, changed)
check("updated", (updated.deployment_num, updated.run_spec.configuration.priority), (1, 50))
other = run_spec("long", ["sleep 601"])
check("not in place", api.runs.get_plan(PROJECT, other).action.value, "create")
refused("still active", ServerClientError, "Cannot override active run", lambda: submit(api, other))
refused("delete it", ServerClientError, "Cannot delete active runs: ['long']", lambda: api.runs.delete(PROJECT, ["long"]))
check("active", [it.run_spec.run_name for it in api.runs.list(PROJECT, None, only_active=True)], ["long"])
api.runs.stop(PROJECT, ["long", "unknown"], abort=False)
run = finished(api, "long")
check("stopped", (run.status.value, run.termination_reason), ("terminated", "stopped_by_user"))
check("the job's word", run.latest_job_submission.status_message, "stopped")
api.runs.stop(PROJECT, ["long"], abort=True)
submit(api, run_spec("gone", ["sleep 600"]))
api.runs.stop(PROJECT, ["gone"], abort=True)
check("aborted", finished(api, "gone").termination_reason, "aborted_by_user")

runs = api.runs.list(PROJECT, None)
check("all runs", [it.run_spec.run_name for it in runs], ["gone", "long", "nowhere", "three", "hello"])
page = api.runs.list(PROJECT, None, limit=2)
rest = api.runs.list(PROJECT, None, prev_submitted_at=page[-1].submitted_at, prev_run_id=page[-1].id)
check("pages", [it.id for it in page + rest], [it.id for it in runs])
check("ascending", [it.id for it in api.runs.list(None, None, ascending=True)], [it.id for it in runs][::-1])
check("without jobs", api.runs.list(PROJECT, None, include_jobs=False)[0].jobs, [])
short = api.runs.list(PROJECT, None, job_submissions_limit=0)[0]
check("no submissions", short.jobs[0].job_submissions, [])
missing("an unknown user", lambda: api.runs.list(PROJECT, None, username="nobody"), "User not found")
check("an unknown project", api.runs.list("nowhere", None), [])
api.runs.delete(PROJECT, ["hello", "unknown"])
missing("deleted", lambda: api.runs.get(PROJECT, "hello"), "Run not found")
check("by id it stays", api.runs.get(PROJECT, run_id=runs[-1].id).deleted, True)
submit(api, run_spec("hello", ["true"]))
holds("a new one of that name", finished(api, "hello").id != runs[-1].id)
missing("no such run", lambda: api.runs.get(PROJECT, "nope"))

offers = api.runs.get_plan(PROJECT, run_spec("offers", [":"]), for_offers_only=True).job_plans[0]
holds("offers", offers.total_offers > 0 and offers.max_price is not None)
groups = api.gpus.list_gpus(PROJECT, run_spec("offers", [":"], resources={"gpu": "1.."}))
holds("groups of GPUs", [it.name for it in groups])
by = api.gpus.list_gpus(PROJECT, run_spec("offers", [":"], resources={"gpu": "1.."}), group_by=["backend", "region", "count"])
holds("by place", by[0].backend is not None and by[0].region is not None)
refused("a region alone", ServerClientError, "Cannot group by 'region' without", lambda: api.gpus.list_gpus(PROJECT, run_spec("offers", [":"]), group_by=["region"]))
