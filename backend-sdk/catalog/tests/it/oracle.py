"""Answers queries with the reference library: rows of all providers once, then the numbers of rows for each query."""

import dataclasses
import json
import logging
import sys

import gpuhunt

logging.disable(logging.CRITICAL)
queries = json.load(open(sys.argv[1]))
catalog = gpuhunt.Catalog(balance_resources=False, auto_reload=False)
catalog.load()


def plain(item):
    fields = dataclasses.asdict(item)
    fields["gpu_vendor"] = item.gpu_vendor.value if item.gpu_vendor else None
    fields["cpu_arch"] = item.cpu_arch.value
    return fields


rows, numbers = [], {}
for provider, loaded in catalog.catalog.items():
    for item in loaded.items:
        numbers[id(item)] = len(rows)
        rows.append(plain(item))
answers = []
for query in queries:
    # JSON has no pairs.
    for bound in ("min_compute_capability", "max_compute_capability"):
        if isinstance(query.get(bound), list):
            query[bound] = tuple(query[bound])
    # Equal prices of different providers come in no fixed order there; within one provider the order is its own.
    found = sorted(catalog.query(**query), key=lambda item: (item.price, item.provider))
    answers.append([numbers[id(item)] for item in found])
json.dump({"rows": rows, "answers": answers}, sys.stdout)
