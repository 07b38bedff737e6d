/** k9s on its own terminal, with the rig's kubectl for shells and without the user's settings. */
import { mkdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { delimiter, join } from 'node:path';
import { ensurePeer } from '../rig/build.ts';
import { type Transport, environmentFor } from '../rig/kubectl.ts';
import { type Screen, openScreen } from '../rig/screen.ts';

export const K9S_SIZE = { columns: 132, rows: 40 } as const;

export interface K9sOptions {
  readonly kubeconfig: string;
  readonly transport: Transport;
  /** New folder for its settings, its log, and the programs on its PATH. */
  readonly folder: string;
}

/** Starts k9s with the list of the pods in `default`. */
export async function openK9s({ kubeconfig, transport, folder }: K9sOptions): Promise<Screen> {
  const { k9s = '' } = await ensurePeer('k9s');
  const { kubectl = '' } = await ensurePeer('kubernetes-1.36');
  const programs = join(folder, 'bin');
  mkdirSync(programs, { recursive: true });
  symlinkSync(kubectl, join(programs, 'kubectl'));
  // Otherwise k9s would ask GitHub for a newer version.
  writeFileSync(join(folder, 'config.yaml'), 'k9s:\n  skipLatestRevCheck: true\n');
  const inherited = environmentFor({ kubeconfig, transport });
  const env = {
    ...inherited,
    PATH: [programs, inherited['PATH']].join(delimiter),
    HOME: folder,
    K9S_CONFIG_DIR: folder,
    K9S_LOGS_DIR: folder,
  };
  const args = ['--namespace=default', '--command=pods', '--splashless', '--logoless'];
  return openScreen(k9s, args, { env, ...K9S_SIZE });
}
