/** Returns the parts of the rig by name, for the shell and for tests that need several. */
import { type Kubernetes, startKubernetes } from './kubernetes.ts';
import type { Rig } from './rig.ts';
import { type S3Server, startS3 } from './s3.ts';
import { type Tailnet, startTailnet } from './tailnet.ts';

export const PART_NAMES = ['kubernetes', 'kubernetes-1.34', 'tailnet', 's3'] as const;
export type PartName = (typeof PART_NAMES)[number];

export interface Parts {
  kubernetes?: Kubernetes;
  'kubernetes-1.34'?: Kubernetes;
  tailnet?: Tailnet;
  s3?: S3Server;
}

/** Starts the named parts at the same time. */
export async function startParts(rig: Rig, names: readonly PartName[]): Promise<Parts> {
  const parts: Parts = {};
  await Promise.all(
    names.map(async (name) => {
      switch (name) {
        case 'kubernetes':
          parts.kubernetes = await startKubernetes(rig);
          return;
        case 'kubernetes-1.34':
          parts['kubernetes-1.34'] = await startKubernetes(rig, { version: '1.34' });
          return;
        case 'tailnet':
          parts.tailnet = await startTailnet(rig);
          return;
        case 's3':
          parts.s3 = await startS3(rig);
          return;
      }
    }),
  );
  return parts;
}

export function isPartName(text: string): text is PartName {
  return (PART_NAMES as readonly string[]).includes(text);
}
