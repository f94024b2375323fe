export async function pointsPage() {}
