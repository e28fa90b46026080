"""What tests share: spans, traces, servers and programs that they drive."""
