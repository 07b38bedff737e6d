import type { FuzzTarget } from './target.ts';
import { INGRESS_TARGETS } from './targets/ingress.ts';
import { NAME_TARGETS } from './targets/names.ts';
import { PEER_TARGETS } from './targets/peers.ts';
import { REQUEST_TARGETS } from './targets/requests.ts';
import { SEARCH_TARGETS } from './targets/search.ts';
import { SESSION_TARGETS } from './targets/sessions.ts';
import { STORED_TARGETS } from './targets/stored.ts';
import { WIRE_STREAM_TARGETS } from './targets/wire-streams.ts';
import { WIRE_TEXT_TARGETS } from './targets/wire-text.ts';

/** Targets for every parser of untrusted input. */
export const TARGETS: readonly FuzzTarget[] = [
  ...WIRE_STREAM_TARGETS,
  ...WIRE_TEXT_TARGETS,
  ...REQUEST_TARGETS,
  ...PEER_TARGETS,
  ...SESSION_TARGETS,
  ...STORED_TARGETS,
  ...SEARCH_TARGETS,
  ...NAME_TARGETS,
  ...INGRESS_TARGETS,
];
