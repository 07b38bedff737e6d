/** Help texts that `--help` prints below the options of a command. */

export const LS_HELP = `
At a terminal the list fits the width, with short ids that all commands accept. Lists longer than the screen open in
$PAGER (default: less; PAGER=cat for none).`;

export const PLAY_HELP = `
Keys at a terminal: space pause, . next change, ← → 5 seconds, Shift-← Shift-→ a minute, < > speed, g go to a time,
/ find, n N next and previous match, : list of commands, [ ] previous and next command, 0-9 go to that tenth, q quit.`;

export const SEARCH_HELP = `
  needle                  word on the screen, in a command or in a name
  "rm -rf" kube*          phrase; prefix
  cmd:"kubectl delete"    in a command; text: only on the screen
  user: cluster: ns: pod: container: node: tag: kind: id:
  state:running           running, completed, interrupted, violated or damaged
  result:0                an exit code, "failed to start" or "client disconnected"
  trust:unverified        verified, unverified or failed
  tag:incident reviewed:no  tags and reviews of viewers
  user:alice              prefix of the user name; user:"alice" for the exact name
  after:7d before:2026-01-31 duration:>1h exit:!=0 hidden:>0
  NOT word -ns:dev a OR b excluded word or name; one of two terms. All other terms must match.

Quote the query for the shell. Put -- before a query that begins with -.
Exit code: 0 matches, 1 no matches, 2 the search failed.`;

/** Formats of clips. */
export const CLIP_FORMATS = ['svg', 'gif', 'mp4'] as const;
/** Formats of exported recordings. */
export const EXPORT_FORMATS = ['html', 'cast', 'txt', 'stdout', 'stderr'] as const;
export const EXPORT_HELP =
  'html: one page with player, transcript and evidence; cast: the asciicast; txt: text with times; stdout, ' +
  'stderr: the exact bytes of that stream';
