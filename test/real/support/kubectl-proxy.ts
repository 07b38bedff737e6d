/** Runs `kubectl proxy` on a port that the OS chooses. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';

export interface KubectlProxy {
  readonly url: string;
  close(): Promise<void>;
}

export async function startKubectlProxy(kubectl: string, kubeconfig: string): Promise<KubectlProxy> {
  const child = spawn(kubectl, ['proxy', '--port=0', `--kubeconfig=${kubeconfig}`], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const exited = once(child, 'exit');
  let said = '';
  const address = await new Promise<string>((resolve, reject) => {
    exited.then(([code]) => reject(new Error(`kubectl proxy ended with ${code}`)), reject);
    child.stdout.on('data', (chunk: Buffer) => {
      said += chunk.toString();
      const found = /Starting to serve on (127\.0\.0\.1:\d+)/.exec(said)?.[1];
      if (found !== undefined) resolve(found);
    });
  });
  return {
    url: `http://${address}`,
    async close() {
      child.kill();
      await exited;
    },
  };
}
