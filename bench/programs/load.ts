/**
 * The load generator: one process for a complete run, so that its JIT state is the same for all proxies. Reads one plan
 * from each line of input, and prints the result as a line (`plan.ts`).
 */
import { createInterface } from 'node:readline';
import { loadHandshakes, loadWatches } from './load-connections.ts';
import { loadExec } from './load-exec.ts';
import { loadHttp1 } from './load-http1.ts';
import { loadHttp2 } from './load-http2.ts';
import type { LoadMessage, LoadPlan, LoadResult, Target } from './plan.ts';

function send(message: LoadMessage): void {
  process.stdout.write(`${JSON.stringify(message)}\n`);
}

function run(target: Target, plan: LoadPlan, onSteady: () => void): Promise<LoadResult> {
  switch (plan.kind) {
    case 'requests':
      return plan.protocol === 'h1' ? loadHttp1(target, plan, onSteady) : loadHttp2(target, plan, onSteady);
    case 'handshakes':
      return loadHandshakes(target, plan);
    case 'watches':
      return loadWatches(target, plan, onSteady);
    case 'exec':
      return loadExec(target, plan, onSteady);
    case 'together':
      return together(target, plan.plans, onSteady);
  }
}

/** Runs all plans at the same time. The state is steady when all watches of the plans are open. */
async function together(
  target: Target,
  plans: readonly LoadPlan[],
  onSteady: () => void,
): Promise<LoadResult> {
  let open = plans.filter(({ kind }) => kind === 'watches').length;
  const results = await Promise.all(
    plans.map((plan) =>
      run(target, plan, () => {
        open -= 1;
        if (open === 0) onSteady();
      }),
    ),
  );
  return {
    units: results.reduce((sum, { units }) => sum + units, 0),
    seconds: Math.max(...results.map(({ seconds }) => seconds)),
    loadCpuSeconds: Math.max(...results.map(({ loadCpuSeconds }) => loadCpuSeconds)),
  };
}

for await (const line of createInterface({ input: process.stdin })) {
  const { target, plan } = JSON.parse(line) as { readonly target: Target; readonly plan: LoadPlan };
  try {
    send({ result: await run(target, plan, () => send({ steady: true })) });
  } catch (error) {
    send({ error: error instanceof Error ? error.message : String(error) });
  }
}
process.exit(0);
