/** What commands say behind their options. */

export const LS_HELP = `
At a terminal the list fits its width, with short ids that every command takes, and opens in $PAGER when it is longer
than the screen (default: less; PAGER=cat for none).`;

export const PLAY_HELP = `
At a terminal there are keys: space pause, . next change, ← → 5 seconds, Shift-← Shift-→ a minute, < > speed, g go to a
time, / find in what was shown, n N next and previous, 0-9 to so many tenths, q quit.`;

export const SEARCH_HELP = `
  needle                  on the screen, in a command or among the names
  "rm -rf" kube*          a phrase; a beginning
  cmd:"kubectl delete"    in a command; text: on the screen only
  user: ns: pod: container: node: tag: kind: id:
  state:running           running, completed, interrupted, violated or damaged
  result:0                an exit code, "failed to start" or "client disconnected"
  trust:unverified        verified, unverified or failed
  user:alice              user names that begin with alice; user:"alice" for the exact name
  after:7d before:2026-01-31 duration:>1h exit:!=0 hidden:>0
  NOT word -ns:dev a OR b exclude a word or a name; either of two. All other terms must match.

Put the query in quotes, so that the shell leaves it alone; -- before one that begins with -.
Exit code: 0 something was found, 1 nothing, 2 the search failed.`;

/** What a recording can be exported as. */
export const EXPORT_FORMATS = ['html', 'cast', 'txt', 'stdout', 'stderr'] as const;
export const EXPORT_HELP =
  'html: one page with player, transcript and evidence; cast: the asciicast; txt: what could be read, with times; stdout, stderr: what was written there, byte for byte';
