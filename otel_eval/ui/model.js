// What the page knows without a browser: decoding, grouping, filtering and counting. No function
// here touches the document, so that Node can test them.
"use strict";

var OtelEvalModel = (function () {
  const VERDICTS = ["pass", "not_evaluated", "not_passed"]; // from best to worst
  const LABELS = {
    pass: "pass", not_passed: "not passed", not_evaluated: "not evaluated", waiting: "waiting",
    none: "no verdict", skipped: "skipped", failed: "scorer failed",
  };
  const MARKS = {
    pass: "✓", not_passed: "✕", not_evaluated: "?", waiting: "…", none: "·", skipped: "–", failed: "!",
  };

  // Controls, line separators, and characters that change the direction of the text around them.
  const UNSAFE = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;

  /** The text with invisible characters written as escapes, at most `most` characters of it. */
  function plain(text, most) {
    const value = text === null || text === undefined ? "" : String(text);
    const cut = most && value.length > most ? value.slice(0, most) + "…" : value;
    return cut.replace(UNSAFE, function (character) {
      return "\\u" + character.charCodeAt(0).toString(16).padStart(4, "0");
    });
  }

  /** Decodes values of `otel_eval.ui.packing` in their order: an object is a list that begins with
   * its keys or the number of keys seen before, a list begins with -1, and a text that begins with
   * "~" is a number of a text seen before, in base 36, or, after a second "~", itself. */
  function unpacker() {
    const texts = [], shapes = [];
    function textOf(value) {
      const marked = value.charCodeAt(0) === 126; // ~
      if (marked && value.charCodeAt(1) !== 126) return texts[parseInt(value.slice(1), 36)];
      const text = marked ? value.slice(1) : value;
      if (text.length > 3) texts.push(text);
      return text;
    }
    return function unpack(value) {
      if (typeof value === "string") return textOf(value);
      if (!Array.isArray(value)) return value;
      const first = value[0];
      if (first === -1) {
        const list = new Array(value.length - 1);
        for (let at = 1; at < value.length; at++) list[at - 1] = unpack(value[at]);
        return list;
      }
      if (typeof first !== "number") shapes.push(first);
      const keys = typeof first === "number" ? shapes[first] : first;
      // an object without a prototype takes any key, but is slow
      const object = keys.indexOf("__proto__") < 0 ? {} : Object.create(null);
      for (let at = 0; at < keys.length; at++) object[keys[at]] = unpack(value[at + 1]);
      return object;
    };
  }

  function unpackAll(values) {
    const unpack = unpacker();
    return values.map(unpack);
  }

  /** What one result came to: pass, not_passed, skipped or failed. */
  function stateOf(result) {
    if (result.outcome === "scored") return result.passed ? "pass" : "not_passed";
    return result.outcome === "failed" ? "failed" : "skipped";
  }

  function worst(verdicts) {
    return verdicts.reduce(function (one, other) {
      return VERDICTS.indexOf(other) > VERDICTS.indexOf(one) ? other : one;
    });
  }

  /** The verdict of a run under all its evaluations; "waiting" while a result may still change it,
   * "none" for a run that has none because it is a part of another one. */
  function verdictOf(documents) {
    const verdicts = documents.map(function (document) { return document.verdict; }).filter(Boolean);
    if (verdicts.indexOf("not_passed") >= 0) return "not_passed";
    if (documents.some(function (document) { return !document.verdict && document.awaited; })) return "waiting";
    return verdicts.length ? worst(verdicts) : "none";
  }

  function keyOf(document) {
    return document.trace_id + "/" + document.span_id;
  }

  /** The row of a run from its documents, one for each evaluation. */
  function rowOf(documents) {
    const first = documents[0];
    const times = documents.map(function (document) { return Date.parse(document.start_time || document.evaluated_at); });
    const scores = Object.create(null);
    for (const document of documents) {
      for (const result of document.results) {
        const state = stateOf(result), name = result.scorer, shown = scores[name];
        if (!shown || SEVERITY.indexOf(state) > SEVERITY.indexOf(shown.state)) {
          scores[name] = { state: state, value: result.value };
        }
      }
    }
    return {
      key: keyOf(first), documents: documents, first: first, scores: scores, text: "",
      time: times.length && !isNaN(times[0]) ? times[0] : 0, verdict: verdictOf(documents),
    };
  }

  /** What a filter by text looks in; made when it is needed first. */
  function textOf(row) {
    if (!row.text) {
      const first = row.first, parts = [first.agent, first.name, first.service, first.service_version,
        first.trace_id, first.span_id, first.conversation_id, first.case];
      for (const document of row.documents) {
        for (const result of document.results) parts.push(result.scorer, result.explanation);
      }
      row.text = parts.join("\n").toLowerCase();
    }
    return row.text;
  }
  const SEVERITY = ["skipped", "pass", "failed", "not_passed"];

  /** Holds the documents, the highest revision of each run and evaluation, as rows. */
  function collection() {
    const runs = new Map();
    return {
      put: function (document) {
        const key = keyOf(document), held = runs.get(key) || new Map();
        const before = held.get(document.evaluation);
        if (before && before.revision > document.revision) return;
        held.set(document.evaluation, document);
        runs.delete(key); // so that the newest come last
        runs.set(key, held);
        held.row = null;
      },
      drop: function (most) {
        for (const key of runs.keys()) {
          if (runs.size <= most) return;
          runs.delete(key);
        }
      },
      get: function (key) {
        const held = runs.get(key);
        return held ? (held.row = held.row || rowOf([...held.values()])) : null;
      },
      rows: function () {
        return [...runs.values()].map(function (held) {
          return (held.row = held.row || rowOf([...held.values()]));
        });
      },
      get size() { return runs.size; },
    };
  }

  const FIELDS = ["text", "agent", "scorer", "verdict", "version", "sort"];

  /** The view and the filter in an address: `#/runs?agent=a`, `#/runs/TRACE/SPAN`, `#/scorers`. */
  function routeOf(hash) {
    const [path, query] = hash.replace(/^#\/?/, "").split("?");
    const parts = path.split("/"), filter = {}, parameters = new URLSearchParams(query || "");
    for (const field of FIELDS) filter[field] = parameters.get(field) || "";
    const isRun = parts[0] === "runs" && parts.length > 2;
    return {
      view: isRun ? "run" : parts[0] === "scorers" ? "scorers" : "runs",
      key: isRun ? parts[1] + "/" + parts[2] : "", filter: filter,
    };
  }

  function hashOf(view, filter) {
    const query = new URLSearchParams();
    for (const field of FIELDS) if (filter[field]) query.set(field, filter[field]);
    return "#/" + view + (query.size ? "?" + query : "");
  }

  /** The rows that the filter leaves, newest first, or those that do not pass first. A scorer
   * together with a verdict leaves rows in which that scorer came to it. */
  function filtered(rows, filter) {
    const text = filter.text.toLowerCase().trim();
    const matching = rows.filter(function (row) {
      const score = row.scores[filter.scorer];
      return (!text || textOf(row).indexOf(text) >= 0) &&
        (!filter.agent || row.first.agent === filter.agent) &&
        (!filter.version || (row.first.service_version || "") === filter.version) &&
        (!filter.scorer || score) &&
        (!filter.verdict || (filter.scorer ? score.state : row.verdict) === filter.verdict);
    });
    const rank = { not_passed: 0, not_evaluated: 1, waiting: 2, pass: 3, none: 4 };
    return matching.sort(function (one, other) {
      const by = filter.sort === "newest" ? 0 : rank[one.verdict] - rank[other.verdict];
      return by || other.time - one.time;
    });
  }

  /** How many of the rows have each verdict, and the scorers that did not pass, most first. */
  function summary(rows) {
    const counts = { pass: 0, not_passed: 0, not_evaluated: 0, waiting: 0, none: 0 }, scorers = new Map();
    for (const row of rows) {
      counts[row.verdict]++;
      for (const name in row.scores) {
        if (row.scores[name].state === "not_passed") scorers.set(name, (scorers.get(name) || 0) + 1);
      }
    }
    const decided = counts.pass + counts.not_passed;
    return {
      runs: rows.length, counts: counts, decided: decided,
      rate: decided ? counts.pass / decided : null,
      scorers: [...scorers].sort(function (one, other) { return other[1] - one[1]; }),
    };
  }

  /** Counts of verdicts in `bars` equal spans of time, from the first to the last run. */
  function overTime(rows, bars) {
    const timed = rows.filter(function (row) { return row.time > 0; });
    if (!timed.length) return [];
    let from = Infinity, to = -Infinity;
    for (const row of timed) {
      from = Math.min(from, row.time);
      to = Math.max(to, row.time);
    }
    const count = to > from ? bars : 1, width = (to - from) / count || 1, columns = [];
    for (let at = 0; at < count; at++) {
      columns.push({ from: from + at * width, to: from + (at + 1) * width, pass: 0, not_passed: 0, not_evaluated: 0, waiting: 0, none: 0 });
    }
    for (const row of timed) {
      columns[Math.min(count - 1, Math.floor((row.time - from) / width))][row.verdict]++;
    }
    return columns;
  }

  /** Counts, pass rate and distribution by scorer, agent and version, the lowest pass rate first.
   * Skipped and failed results have no value and count in no rate. */
  function scorerTable(rows) {
    const groups = new Map();
    for (const row of rows) {
      for (const document of row.documents) {
        for (const result of document.results) {
          const parts = [result.scorer, row.first.agent || "", row.first.service_version || ""];
          const key = JSON.stringify(parts);
          let group = groups.get(key);
          if (!group) {
            group = {
              scorer: parts[0], agent: parts[1], version: parts[2], type: result.type, pass: 0,
              not_passed: 0, skipped: 0, failed: 0, bins: new Array(10).fill(0), sum: 0,
            };
            groups.set(key, group);
          }
          group[stateOf(result)]++;
          if (result.value !== null && result.outcome === "scored") {
            group.sum += result.value;
            group.bins[Math.min(9, Math.max(0, Math.floor(result.value * 10)))]++;
          }
        }
      }
    }
    const lines = [...groups.values()];
    for (const group of lines) {
      const scored = group.pass + group.not_passed;
      group.scored = scored;
      group.rate = scored ? group.pass / scored : null;
      group.mean = scored ? group.sum / scored : null;
    }
    return lines.sort(function (one, other) {
      return (one.rate === null ? 2 : one.rate) - (other.rate === null ? 2 : other.rate) ||
        other.scored - one.scored || (one.scorer < other.scorer ? -1 : 1);
    });
  }

  /** Values of a field, sorted, for a filter. */
  function choices(rows, value) {
    const items = new Set();
    for (const row of rows) for (const item of value(row)) if (item) items.add(item);
    return [...items].sort();
  }

  /** For each call the numbers, from 1, of calls that ran at the same time. */
  function parallelTo(calls) {
    const parallel = calls.map(function () { return []; }), open = [];
    const timed = calls.map(function (call, at) { return at; }).filter(function (at) {
      return calls[at].start_ms !== null && calls[at].duration_ms !== null;
    }).sort(function (one, other) { return calls[one].start_ms - calls[other].start_ms; });
    let pairs = 0;
    for (const at of timed) {
      const call = calls[at];
      for (let other = open.length - 1; other >= 0; other--) {
        const before = calls[open[other]];
        if (before.start_ms + before.duration_ms <= call.start_ms) {
          open.splice(other, 1);
        } else if (!encloses(before, call) && !encloses(call, before) && pairs++ < 2000) {
          parallel[open[other]].push(at + 1);
          parallel[at].push(open[other] + 1);
        }
      }
      if (open.length < 64) open.push(at);
    }
    return parallel.map(function (numbers) { return numbers.sort(function (a, b) { return a - b; }); });
  }

  function encloses(outer, inner) {
    return Boolean(outer.span_id) && (inner.enclosing || []).indexOf(outer.span_id) >= 0;
  }

  /** Expected and actual calls side by side from the details of a scorer that aligns them, in the
   * order of the expected calls with extra ones where they were made; null for other scorers.
   * `first` is the index of the first line that differs, or -1. */
  function compared(result, calls) {
    const details = result.details || {};
    if (!Array.isArray(details.matched) || !Array.isArray(details.missing) || !Array.isArray(details.extra)) return null;
    const total = details.matched.length + details.extra.length;
    const misplaced = new Map((details.misplaced || []).map(function (call) { return [call.actual, call]; }));
    // The indexes count the calls that the scorer read; if those are not all, names are not known.
    const named = calls && calls.length === total ? calls : null;
    const lines = details.matched.map(function (pair) {
      const name = named ? named[pair[1]].name : "call " + (pair[1] + 1);
      const differs = pair.length > 2 && pair[2] < 1;
      return { at: pair[1], order: pair[0], expected: named ? name : "expected " + (pair[0] + 1), actual: name, state: differs ? "differs" : "same" };
    });
    for (const call of details.missing) {
      lines.push({ at: Infinity, order: call.expected, expected: call.tool, actual: "", state: "missing" });
    }
    for (const call of details.extra) {
      lines.push({
        at: call.actual, order: null, expected: "", actual: call.tool,
        state: misplaced.has(call.actual) ? "out of order" : "extra",
      });
    }
    const expected = lines.filter(function (line) { return line.order !== null; })
      .sort(function (one, other) { return one.order - other.order; });
    const extra = lines.filter(function (line) { return line.order === null; })
      .sort(function (one, other) { return one.at - other.at; });
    const merged = [];
    for (const line of expected) {
      while (extra.length && line.at !== Infinity && extra[0].at < line.at) merged.push(extra.shift());
      merged.push(line);
    }
    merged.push(...extra);
    return { lines: merged, first: merged.findIndex(function (line) { return line.state !== "same"; }) };
  }

  function duration(ms) {
    if (ms === null || ms === undefined) return "unknown";
    if (ms < 1) return ms.toFixed(2) + " ms";
    if (ms < 1000) return Math.round(ms) + " ms";
    if (ms < 60000) return (ms / 1000).toFixed(ms < 10000 ? 2 : 1) + " s";
    return Math.floor(ms / 60000) + " min " + Math.round((ms % 60000) / 1000) + " s";
  }

  function percent(rate) {
    if (rate === null) return "–";
    // never 100 % or 0 % by rounding
    return (rate === 1 ? "100" : rate === 0 ? "0" : Math.min(99.9, Math.max(0.1, rate * 100)).toFixed(1).replace(/\.0$/, "")) + " %";
  }

  /** Which rows of a list are drawn: those seen and some around them. */
  function visible(scrolled, height, rowHeight, count) {
    const first = Math.max(0, Math.floor(scrolled / rowHeight) - 6);
    return [first, Math.min(count, Math.ceil((scrolled + height) / rowHeight) + 6)];
  }

  /** The address of a trace in the user's own backend, or "" if it is not one of http(s). */
  function traceAddress(template, document) {
    const filled = (template || "").replace(/\{(trace_id|span_id)\}/g, function (_, name) {
      return encodeURIComponent(document[name] || "");
    });
    return /^https?:\/\//i.test(filled) ? filled : "";
  }

  /** Why nothing is shown, in lines: what the receiver says, else from its counters. */
  function whyEmpty(status) {
    const counts = (status && status.counts) || {}, why = (status && status.why) || [];
    if (why.length) {
      return why.concat(counts.runs_unmatched ? "Correct `match` in the configuration."
        : "`otel-eval explain` with stored traces shows what each span lacks.");
    }
    if (counts.open_traces) return [counts.open_traces + " traces are open: a run is scored when its root span has ended."];
    return counts.requests ? ["Requests arrived, but no run was scored yet."] : [];
  }

  return {
    LABELS, MARKS, choices, collection, compared, duration, filtered, hashOf, overTime,
    parallelTo, percent, plain, routeOf, scorerTable, stateOf, summary, traceAddress, unpackAll,
    verdictOf, visible, whyEmpty,
  };
})();

if (typeof module !== "undefined") module.exports = OtelEvalModel;
