/** Runs `act`, and returns the number of event-loop turns until it completes. */
export async function turnsDuring(act: () => Promise<unknown>): Promise<number> {
  let turns = 0;
  let isOver = false;
  const count = (): void => {
    turns += 1;
    if (!isOver) setImmediate(count);
  };
  setImmediate(count);
  await act();
  isOver = true;
  return turns;
}
