// Draws the page. Every text is set as text, never as markup.
"use strict";

(function () {
  const model = OtelEvalModel, main = document.getElementById("main");
  const connection = document.getElementById("connection");
  const data = JSON.parse(document.getElementById("data").textContent);
  const settings = data.settings || {};
  const runs = model.collection();
  const MOST_CALLS = 200; // drawn at first; a button draws more
  let status = data.status || {}, draw = function () {}, shown = "";
  let hasData = data.mode !== "live"; // until then nothing is known, not even that no run is there

  function element(name, attributes, ...children) {
    const made = document.createElementNS(
      /^(svg|rect|line|title)$/.test(name) && name !== "title" ? "http://www.w3.org/2000/svg" : "http://www.w3.org/1999/xhtml", name);
    for (const key in attributes || {}) {
      if (key === "on") for (const event in attributes.on) made.addEventListener(event, attributes.on[event]);
      else if (attributes[key] !== null && attributes[key] !== false) made.setAttribute(key, attributes[key]);
    }
    made.append(...children.flat().filter(function (child) { return child !== null && child !== ""; }));
    return made;
  }

  const text = model.plain;

  function state(name, value) {
    return element("span", { class: "state " + name },
      element("i", { "aria-hidden": "true" }, model.MARKS[name]), element("span", {}, value || model.LABELS[name]));
  }

  function time(row) {
    if (!row.time) return "time unknown";
    const at = new Date(row.time), pad = function (n) { return String(n).padStart(2, "0"); };
    return pad(at.getMonth() + 1) + "-" + pad(at.getDate()) + " " + pad(at.getHours()) + ":" + pad(at.getMinutes()) + ":" + pad(at.getSeconds());
  }

  function facts(pairs) {
    return element("dl", { class: "facts" }, pairs.filter(function (pair) { return pair[1] !== "" && pair[1] !== null && pair[1] !== undefined; })
      .map(function (pair) {
        return element("div", {}, element("dt", {}, pair[0]), element("dd", {}, pair[1] instanceof Node ? pair[1] : text(pair[1])));
      }));
  }

  function plural(count, word) {
    return count.toLocaleString("en") + " " + word + (count === 1 ? "" : "s");
  }

  // ------------------------------------------------------------------ head

  function chart(rows) {
    const bars = model.overTime(rows, 48);
    if (!bars.length) return null;
    const KINDS = ["pass", "not_evaluated", "waiting", "not_passed"], width = 480 / bars.length;
    const most = Math.max(...bars.map(function (bar) { return KINDS.reduce(function (sum, kind) { return sum + bar[kind]; }, 0); }));
    const svg = element("svg", { viewBox: "0 0 480 60", preserveAspectRatio: "none", role: "img", "aria-label": "Verdicts over time: " + chartText(rows) });
    bars.forEach(function (bar, at) {
      let top = 60;
      for (const kind of KINDS) {
        const height = 58 * bar[kind] / most;
        if (!height) continue;
        top -= height;
        const x = at * width + 0.5, wide = Math.min(width - 1, 24);
        svg.append(element("rect", { class: kind, x: x, y: top, width: wide, height: height }));
        for (let y = top + 3; kind === "not_passed" && y < top + height; y += 5) {
          svg.append(element("line", { class: "hatch", x1: x, x2: x + wide, y1: y, y2: y }));
        }
      }
    });
    const span = [bars[0].from, bars[bars.length - 1].to].map(function (time) { return new Date(time).toLocaleString("en-GB"); });
    return element("figure", { class: "chart" }, svg, element("figcaption", {},
      element("span", {}, span[0] === span[1] ? span[0] : span.join(" – ")), element("span", {}, "striped: not passed")));
  }

  function chartText(rows) {
    const counts = model.summary(rows).counts;
    return ["pass", "not_passed", "not_evaluated", "waiting"].filter(function (key) { return counts[key]; })
      .map(function (key) { return counts[key] + " " + model.LABELS[key]; }).join(", ");
  }

  function tile(title, value, note) {
    return element("div", { class: "tile" }, title, element("b", {}, value), element("span", { class: "faint" }, note || ""));
  }

  function head(rows) {
    const found = model.summary(rows), counts = found.counts;
    const worst = found.scorers.slice(0, 3).map(function (pair) {
      const filter = { scorer: pair[0], verdict: "not_passed" };
      return element("li", {}, element("a", { href: model.hashOf("runs", filter) }, text(pair[0], 60)), " in " + plural(pair[1], "run"));
    });
    return element("section", { class: "tiles", "aria-label": "Summary" },
      tile("Pass rate", model.percent(found.rate), found.decided ? "of " + plural(found.decided, "decided run") : "no run is decided"),
      tile("Not passed", counts.not_passed.toLocaleString("en"), "of " + plural(found.runs, "run")),
      counts.not_evaluated + counts.waiting ? tile("Not evaluated", (counts.not_evaluated + counts.waiting).toLocaleString("en"), counts.waiting ? counts.waiting + " waiting" : "no verdict") : null,
      element("div", { class: "tile wide" }, "Scorers that do not pass", worst.length ? element("ul", {}, worst) : element("b", {}, "none")),
      chart(rows), receiverTile());
  }

  function receiverTile() {
    if (data.mode !== "live") return null;
    const counts = status.counts || {};
    const age = status.exported_ms ? Math.max(0, Date.now() - status.exported_ms) : null;
    return element("div", { class: "tile" }, "Exports", element("b", {}, (counts["results.queued"] || 0) + " queued"),
      element("span", { class: "faint" }, (counts["results.dead_letters"] || 0) + " dead letters; " + (status.left_out ? status.left_out + " runs too large to show; " : "") + "last export " +
        (age === null ? "none yet" : age < 1000 ? "just now" : model.duration(age) + " ago")));
  }

  // ------------------------------------------------------------------ list

  function listView(route) {
    const filter = route.filter, scroller = element("div", { class: "scroller", role: "rowgroup" });
    const body = element("div", { class: "rows", role: "presentation" });
    const summaryPlace = element("div"), count = element("p", { class: "faint", role: "status" });
    const header = element("div", { class: "head row", role: "row" });
    const table = element("div", { class: "list", role: "table", "aria-label": "Runs" }, element("div", { role: "rowgroup" }, header), scroller);
    let rows = [], columns = [], active = 0, more = 0, pending = 0;

    function control(field, label, options) {
      const change = function (event) {
        filter[field] = event.target.value;
        history.replaceState(null, "", model.hashOf("runs", filter));
        shown = location.hash;
        update();
      };
      if (!options) {
        return element("label", {}, label, element("input", { type: "search", value: filter[field], on: { input: change } }));
      }
      const select = element("select", { on: { change: change } });
      fill(select, options, filter[field]);
      selects.push([select, field]);
      return element("label", {}, label, select);
    }
    const selects = [];
    const VERDICT_OPTIONS = [["", "all"], ["not_passed", "not passed"], ["pass", "pass"], ["not_evaluated", "not evaluated"], ["skipped", "skipped (with a scorer)"], ["failed", "failed (with a scorer)"]];
    function fill(select, options, value) {
      if (value && !options.some(function (option) { return option[0] === value; })) options = options.concat([[value, value]]);
      select.replaceChildren(...options.map(function (option) {
        return element("option", { value: option[0], selected: option[0] === value ? "" : null }, text(option[1], 80));
      }));
    }
    const VALUES = {
      agent: function (row) { return [row.first.agent]; },
      version: function (row) { return [row.first.service_version]; },
      scorer: function (row) { return Object.keys(row.scores); },
    };
    const known = {};
    function refill(all) {
      for (const [select, field] of selects) {
        if (!VALUES[field] || document.activeElement === select) continue;
        const items = model.choices(all, VALUES[field]), key = items.join("\n");
        if (known[field] === key) continue;
        known[field] = key;
        fill(select, [["", "all"]].concat(items.map(function (item) { return [item, item]; })), filter[field]);
      }
    }
    const filters = element("form", { class: "filters", role: "search", "aria-label": "Filter runs", on: { submit: function (event) { event.preventDefault(); } } },
      control("text", "Text"), element("details", { class: "choices", open: isNarrow() ? null : "" }, element("summary", {}, "Filters and order"), element("div", {},
        control("agent", "Agent", [["", "all"]]), control("scorer", "Scorer", [["", "all"]]),
        control("verdict", "Verdict", VERDICT_OPTIONS), control("version", "Version", [["", "all"]]),
        control("sort", "Order", [["", "not passed first"], ["newest", "newest first"]]))));

    function isNarrow() { return matchMedia("(max-width: 700px)").matches; }
    function rowHeight() { return isNarrow() ? 84 : 40; }

    function rowElement(row, at) {
      const first = row.first, calls = first.calls ? first.calls.length : null;
      const cells = columns.map(function (name) {
        const score = row.scores[name];
        return element("span", { title: text(name, 80) }, score
          ? state(score.state, score.state === "pass" || score.state === "not_passed" ? Number(score.value).toFixed(2) : null) : element("span", { class: "faint" }, "·"));
      });
      const name = text(first.agent || first.name || "run " + first.span_id, 120);
      return element("div", { class: "row", role: "row", "aria-rowindex": at + 2, style: null },
        element("span", { role: "cell" }, state(row.verdict)),
        element("span", { role: "cell", class: "faint" }, time(row)),
        element("span", { role: "cell" }, element("a", { href: "#/runs/" + row.key, dir: "auto" }, name)),
        element("span", { role: "cell", class: "faint", dir: "auto" }, text([first.service, first.service_version].filter(Boolean).join(" "), 90) || "–"),
        element("span", { role: "cell", class: "number", "data-unit": " calls" }, calls === null ? "–" : String(calls)),
        element("span", { role: "cell", class: "number" }, model.duration(first.duration_ms)),
        element("span", { role: "cell", class: "cells" }, cells));
    }

    function paint(force) {
      const height = rowHeight();
      scroller.style.height = Math.max(height, Math.min(rows.length * height, innerHeight * 0.72)) + "px";
      body.style.height = rows.length * height + "px";
      const range = model.visible(scroller.scrollTop, scroller.clientHeight || 600, height, rows.length);
      if (!force && body.dataset.range === range.join()) return;
      const focused = body.contains(document.activeElement) ? document.activeElement.closest(".row").getAttribute("aria-rowindex") : null;
      body.dataset.range = range.join();
      const made = [];
      for (let at = range[0]; at < range[1]; at++) {
        const row = rowElement(rows[at], at);
        row.style.top = at * height + "px";
        made.push(row);
      }
      body.replaceChildren(...made);
      if (focused) focusRow(Number(focused) - 2);
    }

    function focusRow(at) {
      const row = body.querySelector('[aria-rowindex="' + (at + 2) + '"] a');
      if (row) row.focus({ preventScroll: true });
    }

    function move(event) {
      const page = Math.max(1, Math.floor(scroller.clientHeight / rowHeight()) - 1);
      const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -rows.length, End: rows.length };
      const from = event.target.closest(".row");
      if (!(event.key in steps) || !from) return;
      event.preventDefault();
      active = Math.max(0, Math.min(rows.length - 1, Number(from.getAttribute("aria-rowindex")) - 2 + steps[event.key]));
      const height = rowHeight(), top = active * height;
      if (top < scroller.scrollTop) scroller.scrollTop = top;
      else if (top + height > scroller.scrollTop + scroller.clientHeight) scroller.scrollTop = top + height - scroller.clientHeight;
      paint(true);
      focusRow(active);
    }

    function update() {
      pending = 0;
      const all = runs.rows();
      if (!all.length) {
        main.replaceChildren(element("h1", {}, "Runs"), emptyView());
        return;
      }
      if (!main.contains(table)) main.replaceChildren(element("h1", {}, "Runs"), ...notices(), summaryPlace, filters, count, table);
      refill(all);
      rows = model.filtered(all, filter);
      if (!summaryPlace.contains(document.activeElement)) summaryPlace.replaceChildren(status.unmatched ? element("p", { class: "notice" }, text(status.unmatched, 2000)) : "", head(rows));
      const names = [...new Set(rows.slice(0, 2000).flatMap(function (row) { return Object.keys(row.scores); }))];
      columns = names.slice(0, 6);
      more = names.length - columns.length;
      table.style.setProperty("--scorers", columns.length || 1);
      header.replaceChildren(...["Verdict", "Time", "Agent", "Service", "Calls", "Duration"].map(function (title) {
        return element("span", { role: "columnheader", class: /Calls|Dur/.test(title) ? "number" : null }, title);
      }), element("span", { role: "columnheader", class: "cells" }, columns.map(function (name) { return element("span", { title: text(name, 80) }, text(name, 40)); })));
      table.setAttribute("aria-rowcount", rows.length + 1);
      count.textContent = (rows.length === all.length ? plural(rows.length, "run") : rows.length + " of " + plural(all.length, "run")) +
        (more > 0 ? "; " + plural(more, "further scorer") + " in each run's own view" : "") + (rows.length ? "" : ": no run fits the filter");
      table.hidden = !rows.length;
      paint(true);
    }
    scroller.append(body);
    scroller.addEventListener("scroll", function () { paint(false); }, { passive: true });
    scroller.addEventListener("keydown", move);
    update();
    return {
      refresh: function () { if (!pending) pending = setTimeout(update, 250); },
      resize: function () {
        if (!isNarrow()) filters.querySelector("details").open = true;
        if (main.contains(table)) paint(true);
      },
    };
  }

  function notices() {
    return (data.notices || []).map(function (notice) { return element("p", { class: "notice" }, text(notice, 2000)); });
  }

  function emptyView() {
    if (!hasData) return element("p", { class: "faint" }, "Loading…");
    const addresses = settings.addresses || {}, why = model.whyEmpty(status);
    if (data.mode !== "live") {
      return element("div", { class: "empty" }, element("h2", {}, "No run was evaluated"), ...notices(),
        element("p", {}, "`otel-eval explain` with the same files and --config shows for each trace why it has no run or no score."));
    }
    const http = addresses.http ? "http://" + addresses.http : "";
    const lines = http ? "export OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf\nexport OTEL_EXPORTER_OTLP_ENDPOINT=" + http
      : "export OTEL_EXPORTER_OTLP_PROTOCOL=grpc\nexport OTEL_EXPORTER_OTLP_ENDPOINT=http://" + (addresses.grpc || "HOST:PORT");
    return element("div", { class: "empty" }, element("h2", {}, why.length ? "No run was scored yet" : "No span has arrived yet"),
      why.length ? element("div", { class: "notice" }, why.map(function (line) { return element("p", {}, text(line, 2000)); })) : null,
      element("p", {}, "Send OTLP spans of an instrumented agent here:"), element("pre", { tabindex: "0" }, text(lines)),
      facts([["OTLP over gRPC", addresses.grpc || ""], ["OTLP over HTTP", http ? http + "/v1/traces" : ""]]),
      element("p", { class: "faint" }, "A run appears here when its root span has ended and it was scored."));
  }

  // ------------------------------------------------------------------ a run

  function callLine(call, at, total, beside) {
    const start = call.start_ms, timed = start !== null && call.duration_ms !== null && total > 0;
    const bar = element("span", { class: call.error ? "error" : null });
    if (timed) {
      bar.style.left = Math.max(0, Math.min(99.5, 100 * start / total)) + "%";
      bar.style.width = Math.max(0.3, Math.min(100 - Math.max(0, 100 * start / total), 100 * call.duration_ms / total)) + "%";
    }
    const name = element("div", { class: "name" }, element("span", { class: "faint" }, at + 1 + ". "), element("bdi", {}, text(call.name, 300)));
    const depth = Math.min(6, (call.enclosing || []).length);
    name.style.paddingLeft = depth * 18 + "px";
    if (depth) name.prepend(element("span", { class: "faint" }, "↳ "));
    if (call.agent) name.append(element("span", { class: "faint" }, " · ", element("bdi", {}, text(call.agent, 100))));
    const notes = [];
    if (beside.length) notes.push(element("span", { class: "faint" }, " ∥ at the same time as " + beside.slice(0, 6).join(", ") + (beside.length > 6 ? " and more" : "")));
    if (call.error) notes.push(element("span", { class: "error-text" }, " ✕ error: " + text(call.error, 300)));
    else if (call.failure_unknown) notes.push(element("span", { class: "faint" }, " ? whether it failed is unknown"));
    const content = ["arguments", "result"].filter(function (key) { return key in call; }).map(function (key) {
      return element("details", {}, element("summary", {}, key), element("pre", { tabindex: "0" }, text(JSON.stringify(call[key], null, 2), 20000)));
    });
    return element("li", {}, element("div", { class: "call" }, name,
      element("div", { class: "number" }, model.duration(call.duration_ms)),
      element("div", { class: "track", "aria-hidden": "true" }, timed ? bar : null)), element("div", {}, notes), content);
  }

  function timeline(first) {
    const calls = first.calls;
    if (!calls) {
      const why = first.calls_left_out ? "The calls of runs that pass were left out of this report to keep it small; --max-runs includes more."
        : first.calls_unknown ? "The calls are unknown: " + text(first.calls_unknown, 1000)
        : "Result files have no calls. Open the stored traces to see them: otel-eval view TRACES --config FILE";
      return element("p", { class: "notice" }, why);
    }
    if (!calls.length) return element("p", {}, "The run called no tool.");
    const total = Math.max(first.duration_ms || 0, ...calls.slice(0, 20000).map(function (call) { return (call.start_ms || 0) + (call.duration_ms || 0); }));
    const beside = model.parallelTo(calls), list = element("ol", { class: "calls" });
    let drawn = 0;
    const button = element("button", { type: "button", on: { click: function () { add(MOST_CALLS * 5); } } });
    function add(count) {
      const upTo = Math.min(calls.length, drawn + count);
      for (; drawn < upTo; drawn++) list.append(callLine(calls[drawn], drawn, total, beside[drawn]));
      button.hidden = drawn >= calls.length;
      button.textContent = "Show more of " + calls.length.toLocaleString("en") + " calls";
    }
    add(MOST_CALLS);
    return element("div", {}, list, button);
  }

  function comparison(result, calls) {
    const found = model.compared(result, calls);
    if (!found || !found.lines.length) return null;
    // what a scorer accepts is no error
    const passes = model.stateOf(result) === "pass", mark = passes ? "" : "✕ ";
    const WORDS = { same: "same", differs: "differs", missing: mark + "missing", extra: mark + "extra", "out of order": mark + "out of order" };
    const lines = found.lines.slice(0, 500).map(function (line, at) {
      return element("tr", { class: (line.state === "same" ? "" : "differs") + (at === found.first && !passes ? " first" : "") },
        element("td", {}, element("bdi", {}, text(line.expected, 200) || "–")), element("td", {}, element("bdi", {}, text(line.actual, 200) || "–")),
        element("td", {}, WORDS[line.state] + (at === found.first ? " (first difference)" : "")));
    });
    const differences = ((result.details && result.details.differences) || []).slice(0, 10).map(function (difference) {
      return element("li", {}, text(JSON.stringify(difference), 500));
    });
    return element("details", { open: found.first >= 0 ? "" : null }, element("summary", {}, "Expected and actual calls"),
      element("table", {}, element("thead", {}, element("tr", {}, ["Expected", "Actual", "Comparison"].map(function (title) { return element("th", { scope: "col" }, title); }))), element("tbody", {}, lines)),
      differences.length ? element("ul", {}, differences) : null);
  }

  function scoreCard(result, document_, calls) {
    const name = model.stateOf(result);
    const why = result.reason ? " (" + text(result.reason).replace(/_/g, " ") + ")" : result.error_type ? " (" + text(result.error_type, 100) + ")" : "";
    return element("section", { class: "score " + name },
      element("div", {}, element("h3", {}, element("bdi", {}, text(result.scorer, 200))), state(name, model.LABELS[name] + why),
        result.value === null ? null : element("span", {}, "score " + Number(result.value).toFixed(3)),
        result.threshold === null ? null : element("span", { class: "faint" }, "passes from " + result.threshold)),
      element("p", { dir: "auto" }, text(result.explanation, 5000)),
      comparison(result, calls),
      facts([["Type", result.type + (result.version ? " " + result.version : "")], ["Policy", result.policy],
        ["Severity", result.severity === "warn" ? "warn: does not count for the verdict" : result.severity],
        ["Evaluation", document_.evaluation], ["Revision", document_.revision]]));
  }

  function runView(route) {
    const row = runs.get(route.key);
    const back = element("p", {}, element("a", { href: lastList }, "← All runs"));
    if (!row && !hasData) {
      main.replaceChildren(back, emptyView());
      return;
    }
    if (!row) {
      main.replaceChildren(back, element("h1", {}, "This run is not here"),
        element("p", {}, data.mode === "live" ? "The page holds the last runs only, and shows this one when it arrives." : "The file has no run with this address."));
      return;
    }
    const first = row.documents.find(function (document_) { return document_.calls; }) || row.first;
    const link = model.traceAddress(settings.trace_url, first);
    const cards = row.documents.flatMap(function (document_) {
      return document_.results.map(function (result) { return [result, document_]; });
    }).sort(function (one, other) { return ORDER.indexOf(model.stateOf(one[0])) - ORDER.indexOf(model.stateOf(other[0])); });
    main.replaceChildren(back,
      element("h1", {}, state(row.verdict), " ", element("bdi", {}, text(first.agent || first.name || "Run", 200))),
      facts([["Started", first.start_time ? text(first.start_time) : "unknown"], ["Duration", model.duration(first.duration_ms)],
        ["Service", first.service], ["Version", first.service_version], ["Environment", first.environment], ["Conversation", first.conversation_id],
        ["Case", first.case], ["Model calls", first.model_calls], ["Tokens in / out", first.input_tokens === null || first.input_tokens === undefined ? "" : first.input_tokens + " / " + (first.output_tokens === null ? "unknown" : first.output_tokens)],
        ["Completeness", first.completeness], ["Evaluated", first.evaluated_at],
        ["Trace", link ? element("a", { href: link, rel: "noreferrer noopener" }, first.trace_id) : element("code", {}, text(first.trace_id))],
        ["Span", element("code", {}, text(first.span_id))]]),
      element("h2", {}, "Scores"), element("div", { class: "scores" }, cards.map(function (pair) { return scoreCard(pair[0], pair[1], first.calls); })),
      element("h2", {}, "Calls"), timeline(first));
  }
  const ORDER = ["not_passed", "failed", "skipped", "pass"];

  // ------------------------------------------------------------------ scorers

  function bins(group) {
    const most = Math.max(1, ...group.bins);
    const label = "Distribution of " + group.scored + " scores from 0 to 1 in tenths: " + group.bins.join(", ");
    return element("svg", { class: "bins", viewBox: "0 0 100 24", role: "img", "aria-label": label, preserveAspectRatio: "none" },
      group.bins.map(function (count, at) {
        const height = count ? Math.max(2, 23 * count / most) : 0;
        return element("rect", { class: "bin", x: at * 10 + 0.5, y: 23 - height, width: 9, height: height });
      }), element("line", { x1: 0, x2: 100, y1: 23.5, y2: 23.5, stroke: "currentColor" }));
  }

  function scorersView(route) {
    const all = runs.rows(), chosen = { agent: route.filter.agent, version: route.filter.version };
    const focused = main.contains(document.activeElement) ? document.activeElement.id : "";
    function choice(field, label) {
      const values = model.choices(all, function (row) { return [field === "agent" ? row.first.agent : row.first.service_version]; });
      if (chosen[field] && values.indexOf(chosen[field]) < 0) values.push(chosen[field]);
      return element("label", {}, label, element("select", { id: "of-" + field, on: { change: function (event) {
        chosen[field] = event.target.value;
        location.hash = model.hashOf("scorers", chosen);
      } } }, [""].concat(values).map(function (value) {
        return element("option", { value: value, selected: value === chosen[field] ? "" : null }, text(value, 80) || "all");
      })));
    }
    const groups = model.scorerTable(model.filtered(all, Object.assign({}, route.filter, { text: "", scorer: "", verdict: "" })));
    const lines = groups.slice(0, 1000).map(function (group) {
      const filter = { scorer: group.scorer, agent: group.agent, version: group.version };
      const cell = function (value, name) { return element("td", { class: "number" }, value ? element("a", { href: model.hashOf("runs", Object.assign({ verdict: name }, filter)) }, String(value)) : "0"); };
      return element("tr", {}, element("th", { scope: "row" }, element("bdi", {}, text(group.scorer, 100))),
        element("td", {}, element("bdi", {}, text(group.agent, 100) || "–")), element("td", {}, element("bdi", {}, text(group.version, 60) || "–")),
        element("td", { class: "number" }, group.rate === null ? "not scored" : model.percent(group.rate)),
        cell(group.not_passed, "not_passed"), cell(group.pass, "pass"), cell(group.skipped, "skipped"), cell(group.failed, "failed"),
        element("td", { class: "number" }, group.mean === null ? "–" : group.mean.toFixed(3)), element("td", {}, bins(group)));
    });
    const TITLES = ["Scorer", "Agent", "Version", "Pass rate", "Not passed", "Pass", "Skipped", "Failed", "Mean", "Scores from 0 to 1"];
    main.replaceChildren(element("h1", {}, "Scorers"), all.length ? element("form", { class: "filters", "aria-label": "Filter scorers" }, choice("agent", "Agent"), choice("version", "Version")) : "", all.length ? element("div", { class: "scrolls", tabindex: "0", role: "region", "aria-label": "Scorers by agent and version" },
      element("table", {}, element("caption", {}, "The lowest pass rate first. Skipped and failed results count in no rate."),
        element("thead", {}, element("tr", {}, TITLES.map(function (title, at) { return element("th", { scope: "col", class: at > 2 && at < 9 ? "number" : null }, title); }))),
        element("tbody", {}, lines))) : emptyView());
    if (focused) (document.getElementById(focused) || main).focus({ preventScroll: true });
  }

  // ------------------------------------------------------------------ routes and data

  let lastList = "#/runs", current = null;
  function show() {
    const route = model.routeOf(location.hash), moved = location.hash !== shown;
    shown = location.hash;
    if (route.view === "runs") lastList = location.hash || "#/runs";
    document.getElementById("to-runs").toggleAttribute("aria-current", route.view !== "scorers");
    document.getElementById("to-scorers").toggleAttribute("aria-current", route.view === "scorers");
    for (const id of ["to-runs", "to-scorers"]) {
      const link = document.getElementById(id);
      if (link.hasAttribute("aria-current")) link.setAttribute("aria-current", "page");
    }
    current = route.view === "runs" ? listView(route) : null;
    let pending = 0;
    const redraw = route.view === "run" ? runView : scorersView;
    if (!current) {
      redraw(route);
      let version = versionOf(route);
      current = { resize: function () {}, refresh: function () {
        if (!pending) pending = setTimeout(function () {
          pending = 0;
          if (versionOf(route) === version || location.hash !== shown) return;
          version = versionOf(route);
          redraw(route);
        }, 500);
      } };
    }
    document.title = (route.view === "run" ? "Run " + route.key.slice(0, 8) : route.view === "scorers" ? "Scorers" : "Runs") + " · otel-eval";
    draw = current.refresh;
    if (moved && route.view === "run") { scrollTo(0, 0); main.focus({ preventScroll: true }); }
  }

  let changes = 0;
  function versionOf(route) {
    // a run is drawn again only if it changed, so that what is open in it stays open
    if (route.view !== "run") return changes;
    const row = runs.get(route.key);
    return row ? row.documents.map(function (document_) { return document_.revision + ":" + document_.results.length + document_.verdict; }).join() : String(hasData);
  }

  function listen() {
    const events = new EventSource("events");
    let restored = null;
    events.addEventListener("start", function (event) {
      restored = [];
      settings.most = JSON.parse(event.data).most;
    });
    events.addEventListener("run", function (event) {
      const document_ = JSON.parse(event.data);
      if (restored) { restored.push(document_); return; }
      put(document_);
    });
    events.addEventListener("ready", function () {
      for (const document_ of restored || []) put(document_);
      restored = null;
      if (!hasData) { hasData = true; changes++; }
      connection.className = "";
      connection.textContent = "live";
      draw();
    });
    events.addEventListener("status", function (event) {
      const before = JSON.stringify(status);
      status = JSON.parse(event.data);
      if (before !== event.data) draw();
    });
    events.onerror = function () {
      connection.className = "lost";
      connection.textContent = "Connection lost. Trying again; what is shown may be out of date.";
      if (events.readyState === EventSource.CLOSED) {
        connection.textContent = "The receiver does not answer, or eight pages are open already. Trying again.";
        setTimeout(listen, 3000);
      }
    };
  }

  function put(document_) {
    changes++;
    runs.put(document_);
    runs.drop(settings.most || 1000);
    draw();
  }

  for (const document_ of model.unpackAll(data.runs || [])) runs.put(document_);
  addEventListener("hashchange", show);
  addEventListener("resize", function () { if (current) current.resize(); });
  connection.textContent = data.mode === "live" ? "connecting" : data.title || "";
  show();
  if (data.mode === "live") {
    listen();
    setInterval(function () { draw(); }, 15000); // for the age of the last export
  }
})();
