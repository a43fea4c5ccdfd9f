"""Section 16 and 20.3, metrics of a running job."""

from support import *

api = client()
submit(api, run_spec("busy", ["sleep 600"]))
wait("running", lambda: api.runs.get(PROJECT, "busy").status.value == "running")


def names(**window):
    got = api.metrics.get_job_metrics(PROJECT, "busy", **window)
    return {it.name: it for it in got.metrics}


found = wait("the metrics", names)
for name in ["cpu_usage_percent", "memory_usage_bytes", "memory_working_set_bytes", "cpus_detected_num", "memory_total_bytes", "gpus_detected_num"]:
    holds(name, len(found[name].values) == len(found[name].timestamps) == 1)
more = wait("more of them", lambda: (lambda it: it and len(it["cpu_usage_percent"].values) > 1 and it)(names(limit=100)))
times = more["memory_usage_bytes"].timestamps
check("newest first", times, sorted(times, reverse=True))
check("before them", names(before=times[-1].replace(year=2001)), {})
missing("no such job", lambda: api.metrics.get_job_metrics(PROJECT, "busy", job_num=7), "Found no job with given parameters")
missing("no such run", lambda: api.metrics.get_job_metrics(PROJECT, "nope"))
text = api._s.get(f"{URL}/metrics").text
holds("for Prometheus", 'dstack_job_cpu_count{' in text and 'dstack_run_name="busy"' in text)
api.runs.stop(PROJECT, ["busy"], abort=True)
finished(api, "busy")
