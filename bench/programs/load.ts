/**
 * The load generator: one process for a whole run, so that it is as warm for the last peer as for the first. Takes a
 * plan per line and prints what came of it (`plan.ts`).
 */
import { createInterface } from 'node:readline';
import { loadHandshakes, loadWatches } from './load-connections.ts';
import { loadExec } from './load-exec.ts';
import { loadHttp1 } from './load-http1.ts';
import { loadHttp2 } from './load-http2.ts';
import type { LoadMessage, LoadPlan, LoadResult, Target } from './plan.ts';

function tell(message: LoadMessage): void {
  process.stdout.write(`${JSON.stringify(message)}\n`);
}

function run(target: Target, plan: LoadPlan): Promise<LoadResult> {
  const onSteady = (): void => tell({ steady: true });
  switch (plan.kind) {
    case 'requests':
      return plan.protocol === 'h1' ? loadHttp1(target, plan, onSteady) : loadHttp2(target, plan, onSteady);
    case 'handshakes':
      return loadHandshakes(target, plan);
    case 'watches':
      return loadWatches(target, plan, onSteady);
    case 'exec':
      return loadExec(target, plan, onSteady);
  }
}

for await (const line of createInterface({ input: process.stdin })) {
  const { target, plan } = JSON.parse(line) as { readonly target: Target; readonly plan: LoadPlan };
  try {
    tell({ result: await run(target, plan) });
  } catch (error) {
    tell({ error: error instanceof Error ? error.message : String(error) });
  }
}
process.exit(0);
