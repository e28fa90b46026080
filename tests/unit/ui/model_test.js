// Tests of the page's pure functions: node --test tests/unit/ui/model_test.js MODEL is run by
// test_model.py, which names the script in the variable MODEL.
"use strict";

const assert = require("node:assert/strict");
const test = require("node:test");
const model = require(process.env.MODEL);

function result(scorer, passed, value) {
  return { scorer, type: scorer, outcome: "scored", passed, value, explanation: "why " + scorer, details: {} };
}

function run(number, more) {
  return Object.assign({
    trace_id: "t" + number, span_id: "s" + number, agent: "agent", name: "run", service: "service",
    service_version: "1", evaluation: "e", revision: 0, verdict: "pass", awaited: 0,
    start_time: new Date(1700000000000 + number * 60000).toISOString(), duration_ms: 10, calls: [],
    results: [result("tools", true, 1)],
  }, more);
}

function rows(documents) {
  const held = model.collection();
  for (const each of documents) held.put(each);
  return held.rows();
}

function call(name, start, duration, more) {
  return Object.assign({ name, start_ms: start, duration_ms: duration, error: null, span_id: name, enclosing: [] }, more);
}

test("texts and keys that occurred before are decoded", () => {
  const packed = JSON.parse(process.env.PACKED);
  assert.deepEqual(JSON.parse(JSON.stringify(model.unpackAll(packed))), JSON.parse(process.env.UNPACKED));
});

test("invisible characters and those that turn text around are shown as escapes", () => {
  assert.equal(model.plain("a\u202eb\u0000c\u2028d\u200be"), "a\\u202eb\\u0000c\\u2028d\\u200be");
  assert.equal(model.plain("<b>é日本</b>"), "<b>é日本</b>");
  assert.equal(model.plain(null), "");
  assert.equal(model.plain("abcdef", 3), "abc…");
});

test("a later revision replaces an earlier one, also if it arrives first", () => {
  const held = model.collection();
  held.put(run(1, { revision: 1, verdict: "not_passed" }));
  held.put(run(1, { revision: 0 }));
  assert.equal(held.rows().length, 1);
  assert.equal(held.get("t1/s1").verdict, "not_passed");
});

test("the worst verdict of a run's evaluations counts, and unknown is no pass", () => {
  const of = (...verdicts) => model.verdictOf(verdicts.map(([verdict, awaited]) => ({ verdict, awaited })));
  assert.equal(of(["pass", 0], ["not_evaluated", 0]), "not_evaluated");
  assert.equal(of(["pass", 0], [null, 1]), "waiting");
  assert.equal(of(["not_passed", 1], [null, 1]), "not_passed");
  assert.equal(of([null, 0]), "none");
});

test("only decided runs count in the pass rate, and rounding hides no failure", () => {
  const documents = [run(1), run(2, { verdict: "not_evaluated" }), run(3, { verdict: "not_passed" })];
  assert.equal(model.summary(rows(documents)).rate, 0.5);
  assert.equal(model.summary(rows([run(1, { verdict: "not_evaluated" })])).rate, null);
  assert.equal(model.percent(0.9999), "99.9 %");
  assert.equal(model.percent(null), "–");
});

test("the address keeps the filter, and a run has one of its own", () => {
  const filter = { text: "a b&c", agent: "x", scorer: "", verdict: "not_passed", version: "", sort: "" };
  assert.deepEqual(model.routeOf(model.hashOf("runs", filter)).filter, filter);
  assert.deepEqual([model.routeOf("#/runs/t/s").view, model.routeOf("#/runs/t/s").key], ["run", "t/s"]);
  assert.equal(model.routeOf("").view, "runs");
});

test("filters combine, and a scorer with a verdict leaves the runs in which it came to that", () => {
  const all = rows([
    run(1, { agent: "b", results: [result("tools", false, 0), result("time", true, 1)], verdict: "not_passed" }),
    run(2, { service_version: "2" }), run(3),
  ]);
  const found = (filter) => model.filtered(all, Object.assign({ text: "", agent: "", scorer: "", verdict: "", version: "", sort: "" }, filter)).map((row) => row.key);
  assert.deepEqual(found({}), ["t1/s1", "t3/s3", "t2/s2"]);
  assert.deepEqual(found({ sort: "newest" }), ["t3/s3", "t2/s2", "t1/s1"]);
  assert.deepEqual(found({ agent: "b" }), ["t1/s1"]);
  assert.deepEqual(found({ version: "2" }), ["t2/s2"]);
  assert.deepEqual(found({ scorer: "time", verdict: "not_passed" }), []);
  assert.deepEqual(found({ text: "WHY TIME" }), ["t1/s1"]);
});

test("scorers are listed by agent and version, the lowest pass rate first, without skips in it", () => {
  const skipped = { scorer: "tools", type: "tools", outcome: "skipped", passed: null, value: null, explanation: "", details: {} };
  const table = model.scorerTable(rows([run(1), run(2, { results: [skipped] }), run(3, { service_version: "2", results: [result("tools", false, 0.25)] })]));
  assert.deepEqual(table.map((group) => [group.version, group.rate, group.scored, group.skipped]), [["2", 0, 1, 0], ["1", 1, 1, 1]]);
  assert.equal(table[0].bins[2], 1);
});

test("every run is in a bar of the chart", () => {
  const bars = model.overTime(rows([run(1), run(2, { verdict: "not_passed" }), run(50)]), 10);
  assert.equal(bars.length, 10);
  assert.equal(bars.reduce((sum, bar) => sum + bar.pass + bar.not_passed, 0), 3);
});

test("calls at the same time know each other; an enclosing call is no parallel one", () => {
  const calls = [call("outer", 0, 100), call("a", 10, 50, { enclosing: ["outer"] }), call("b", 20, 50, { enclosing: ["outer"] }), call("c", 90, 5), call("unknown", null, null)];
  assert.deepEqual(model.parallelTo(calls), [[4], [3], [2], [1], []]);
});

test("10,000 parallel calls take bounded work", () => {
  const found = model.parallelTo(Array.from({ length: 10000 }, (_, at) => call("c" + at, 0, 1000)));
  assert.ok(found.reduce((sum, each) => sum + each.length, 0) <= 4000);
});

test("expected and actual calls stand side by side with the first difference", () => {
  const details = { matched: [[0, 0], [1, 2]], missing: [{ tool: "book", expected: 2 }], extra: [{ tool: "wrong", actual: 1 }], misplaced: [] };
  const found = model.compared({ details }, [call("weather", 0, 1), call("wrong", 1, 1), call("weather", 2, 1)]);
  assert.deepEqual(found.lines.map((line) => [line.expected, line.actual, line.state]), [
    ["weather", "weather", "same"], ["", "wrong", "extra"], ["weather", "weather", "same"], ["book", "", "missing"],
  ]);
  assert.equal(found.first, 1);
  assert.equal(model.compared({ details: { seen: [] } }, []), null);
});

test("names are not guessed where the scorer read other calls than those of the run", () => {
  const details = { matched: [[0, 0]], missing: [], extra: [] };
  const found = model.compared({ details }, [call("a", 0, 1), call("b", 1, 1)]);
  assert.equal(found.lines[0].actual, "call 1");
});

test("a template cannot make an address that runs a script", () => {
  assert.equal(model.traceAddress("http://jaeger/trace/{trace_id}", { trace_id: "a/b" }), "http://jaeger/trace/a%2Fb");
  assert.equal(model.traceAddress("javascript:alert({trace_id})", { trace_id: "1" }), "");
  assert.equal(model.traceAddress(null, {}), "");
});

test("only the rows that are seen, and a few around them, are drawn", () => {
  assert.deepEqual(model.visible(0, 400, 40, 10000), [0, 16]);
  assert.deepEqual(model.visible(40000, 400, 40, 10000), [994, 1016]);
  assert.deepEqual(model.visible(0, 400, 40, 3), [0, 3]);
});

test("why nothing is shown follows from the counters", () => {
  const unmatched = model.whyEmpty({ why: ["no evaluation matched", "match.agent requires 'a'"], counts: { runs_unmatched: 2 } });
  assert.match(unmatched.join("\n"), /match.agent requires 'a'\nCorrect `match`/);
  assert.match(model.whyEmpty({ why: ["no agent run found in 3 spans"], counts: { traces_without_run: 3 } })[1], /explain/);
  assert.match(model.whyEmpty({ counts: { open_traces: 1 } })[0], /root span has ended/);
  assert.deepEqual(model.whyEmpty({ counts: {} }), []);
});
