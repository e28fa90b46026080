// A small agent traced with the JavaScript SDK; its spans leave through the official OTLP exporter that is named.
import { context, trace } from "@opentelemetry/api";
import { resourceFromAttributes } from "@opentelemetry/resources";
import { BasicTracerProvider, BatchSpanProcessor } from "@opentelemetry/sdk-trace-base";

const [kind, url] = process.argv.slice(2);
const packages = { json: "http", protobuf: "proto", grpc: "grpc" };
const { OTLPTraceExporter } = await import(`@opentelemetry/exporter-trace-otlp-${packages[kind]}`);
const exporter = new OTLPTraceExporter({ url });
const provider = new BasicTracerProvider({
  resource: resourceFromAttributes({ "service.name": "javascript-shop" }),
  spanProcessors: [new BatchSpanProcessor(exporter)],
});
const tracer = provider.getTracer("shop", "1.0");

function child(parent, name, attributes) {
  return tracer.startSpan(name, { attributes }, trace.setSpan(context.active(), parent));
}

const run = tracer.startSpan("invoke_agent clerk", {
  attributes: { "gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "clerk" },
});
for (const [tool, query] of [["search", "é"], ["book", "b"]]) {
  const call = child(run, `execute_tool ${tool}`, {
    "gen_ai.operation.name": "execute_tool",
    "gen_ai.tool.name": tool,
    "gen_ai.tool.call.arguments": JSON.stringify({ query }),
    "price": 1.5,
  });
  call.addEvent("answered", { rows: 3 });
  call.end();
}
run.end();
await provider.shutdown();
console.log(JSON.stringify({ trace_id: run.spanContext().traceId, span_id: run.spanContext().spanId }));
