// The Vercel AI SDK with its own mock model: it asks for a tool, then answers; its telemetry leaves as OTLP/JSON.
import { OTLPTraceExporter } from "@opentelemetry/exporter-trace-otlp-http";
import { BasicTracerProvider, SimpleSpanProcessor } from "@opentelemetry/sdk-trace-base";
import { AsyncLocalStorageContextManager } from "@opentelemetry/context-async-hooks";
import { context } from "@opentelemetry/api";
import { generateText, jsonSchema, stepCountIs, tool } from "ai";
import { MockLanguageModelV3 } from "ai/test";

context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable());
const provider = new BasicTracerProvider({
  spanProcessors: [new SimpleSpanProcessor(new OTLPTraceExporter({ url: process.argv[2] }))],
});
const usage = {
  inputTokens: { total: 3, noCache: 3 },
  outputTokens: { total: 5, text: 5 },
};
const answers = [
  {
    content: [{ type: "tool-call", toolCallId: "call-1", toolName: "weather", input: '{"city":"Paris"}' }],
    finishReason: { unified: "tool-calls", raw: "tool-calls" }, usage, warnings: [],
  },
  { content: [{ type: "text", text: "Sunny." }], finishReason: { unified: "stop", raw: "stop" }, usage, warnings: [] },
];
await generateText({
  model: new MockLanguageModelV3({ doGenerate: async () => answers.shift() }),
  prompt: "How is the weather in Paris?",
  stopWhen: stepCountIs(3),
  tools: {
    weather: tool({
      description: "the weather",
      inputSchema: jsonSchema({ type: "object", properties: { city: { type: "string" } } }),
      execute: async () => ({ sky: "clear" }),
    }),
  },
  experimental_telemetry: { isEnabled: true, functionId: "forecast", tracer: provider.getTracer("ai") },
});
await provider.shutdown();
