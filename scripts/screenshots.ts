/**
 * Renders the pictures of the README: `npm run docs:images`. The pictures show sessions that the gateways of a demo
 * cluster record. The typed commands reveal nothing about the machine.
 */
import { fileURLToPath } from 'node:url';
import type { Page } from 'playwright-core';
import { collectComplaints, openBrowser } from '../test/real/support/browser.ts';
import { type Caller, type DemoArchive, startDemoArchive } from '../test/real/support/demo-archive.ts';

const IMAGES = fileURLToPath(new URL('../docs/images', import.meta.url));
const WIDTH = 1200;
const HEIGHT = 750;

/** End of the prompt in shells of the embedded cluster, without the `$` or `#` that depends on the user. */
const PROMPT = '\x1b[0m:~';
const COMMAND = ['bash'];

interface Example {
  readonly who: Caller;
  readonly namespace: string;
  /** Beginning of the name of the pod in which the shell runs. */
  readonly pod: string;
  readonly columns: number;
  readonly rows: number;
  readonly command?: readonly string[];
  readonly lines: readonly string[];
  readonly exitCode: number;
}

const ROLLOUT = [
  "printf 'image: shop/cart:1.8.2\\nreplicas: 2\\nlimits:\\n  memory: 256Mi\\n' > deployed.yaml",
  "sed -e 's/1.8.2/1.9.0/' -e 's/replicas: 2/replicas: 4/' deployed.yaml > wanted.yaml",
  'diff --unified=5 --label deployed --label wanted --color=always deployed.yaml wanted.yaml',
  'for n in 1 2 3 4; do printf "cart-%d  \\e[32mready\\e[0m  %3d ms\\n" $n $((n * 7 + 11)); done',
  'sleep 4; echo "every byte of this shell is in the recording"',
];

const EXAMPLES: readonly Example[] = [
  {
    who: { tags: ['tag:ci'], nodeName: 'runner-3.example.ts.net' },
    namespace: 'web',
    pod: 'nginx',
    columns: 80,
    rows: 24,
    command: ['sh', '-c', 'echo smoke test passed'],
    lines: [],
    exitCode: 0,
  },
  {
    who: { login: 'bob@example.com' },
    namespace: 'kube-system',
    pod: 'coredns',
    columns: 100,
    rows: 30,
    lines: ['echo "forward . 9.9.9.9" >> Corefile', 'cat Corefile', 'grep -c cache Corefile'],
    exitCode: 1,
  },
  {
    who: { login: 'carol@example.com' },
    namespace: 'default',
    pod: 'shell',
    columns: 120,
    rows: 36,
    lines: ['seq 1 40 | paste -sd" " | fold -w 60', 'echo done'],
    exitCode: 130,
  },
  {
    who: { login: 'alice@example.com' },
    namespace: 'web',
    pod: 'nginx',
    columns: 96,
    rows: 26,
    lines: ROLLOUT,
    exitCode: 0,
  },
];

await using stack = new AsyncDisposableStack();
const demo = await startDemoArchive(undefined, true);
stack.defer(() => demo.close());
for (const example of EXAMPLES) await record(demo, example);
const live = await demo.shell(
  { login: 'dave@example.com' },
  { namespace: 'default', pod: 'shell', command: COMMAND, columns: 100, rows: 28 },
);
await live.type('echo working\r');
await live.expect('working\r\n');
const build = await demo.shell(
  { tags: ['tag:ci'], nodeName: 'runner-3.example.ts.net' },
  { namespace: 'web', pod: await demo.podNamed('web', 'nginx'), command: COMMAND, columns: 100, rows: 28 },
);
await build.expect(PROMPT);
await build.type('for n in 1 2 3 4 5 6; do printf "step %d \\e[32mpassed\\e[0m\\n" $n; done\r');
await build.expect('step 6');

const browser = await openBrowser();
stack.defer(() => browser.close());
const context = await browser.newContext({
  viewport: { width: WIDTH, height: HEIGHT },
  deviceScaleFactor: 1.5,
  reducedMotion: 'reduce',
  colorScheme: 'light',
  locale: 'en-GB',
  timezoneId: 'UTC',
});
const page = await context.newPage();
const complaints = await collectComplaints(page);

await page.goto(demo.url);
await page
  .locator('tr[data-id]')
  .nth(EXAMPLES.length + 1)
  .waitFor();
await page.locator('[data-facet="user:alice@example.com"]').waitFor();
await page
  .locator('.thumbnail canvas')
  .nth(EXAMPLES.length - 1)
  .waitFor();
await page.screenshot({ path: `${IMAGES}/list.png` });

await openAtEnd(page);
await page.screenshot({ path: `${IMAGES}/player.png` });
await page.goto(`${demo.url}/#/live`);
await page.setViewportSize({ width: WIDTH, height: 590 });
await page.locator('.tile .terminal').getByText('step 6').last().waitFor();
await page.locator('.tile[data-fresh]').first().waitFor({ state: 'detached' });
await page.screenshot({ path: `${IMAGES}/live.png` });

for (const shell of [live, build]) {
  await shell.type('exit 0\r');
  await shell.ended;
}
if (complaints.all.length > 0) throw new Error(complaints.all.join('\n'));

/** Opens Alice's recording at its last command. */
async function openAtEnd(shown: Page): Promise<void> {
  await shown.locator('tr[data-id]', { hasText: 'alice@example.com' }).locator('td.command a').click();
  await shown.locator('.terminal[data-size]').waitFor();
  await shown.locator('.commands button', { hasText: 'every byte' }).click();
  await shown
    .locator('.terminal')
    .getByText('every byte of this shell is in the recording', { exact: false })
    .last()
    .waitFor();
}

async function record(archive: DemoArchive, example: Example): Promise<void> {
  const { who, namespace, columns, rows, command = COMMAND, lines, exitCode } = example;
  const pod = await archive.podNamed(namespace, example.pod);
  const shell = await archive.shell(who, {
    namespace,
    pod,
    command,
    columns,
    rows,
    keyMs: 12,
  });
  if (lines.length === 0) return shell.ended;
  for (const line of lines) {
    await shell.expect(PROMPT);
    await shell.type(`${line}\r`);
    await shell.expect('\r\n');
  }
  await shell.expect(PROMPT);
  await shell.type(`exit ${exitCode}\r`);
  await shell.ended;
}
