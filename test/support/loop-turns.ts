/** How often the event loop turned while `act` was under way: what waits for it is let in as often. */
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
