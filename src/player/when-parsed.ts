/**
 * Calls `begin` when the browser has parsed the whole page. If the page is already parsed, calls `begin` in a
 * microtask: a request that starts during the evaluation of a script makes V8 parse the script again, to find the line
 * that started the request.
 */
export function whenParsed(
  page: EventTarget & { readonly readyState: DocumentReadyState },
  begin: () => void,
): void {
  if (page.readyState === 'loading') page.addEventListener('DOMContentLoaded', begin, { once: true });
  else queueMicrotask(begin);
}
