/** Types of the API, from `schema.graphql`: `npm run generate`. A guard fails when they are stale. */
import type { CodegenConfig } from '@graphql-codegen/cli'

const config: CodegenConfig = {
  schema: './schema.graphql',
  generates: {
    './src/graphql/generated.ts': {
      plugins: ['typescript', 'typescript-resolvers'],
      config: {
        useTypeImports: true,
        enumsAsTypes: true,
        immutableTypes: true,
        contextType: './context.ts#RequestContext',
        mappers: {
          Order: '../orders/order.ts#Order as OrderModel',
          OrderEvent: '../orders/queries.ts#OrderEventView as OrderEventModel',
          CustomerSummary: '../orders/summary-queries.ts#CustomerSummary as CustomerSummaryModel',
        },
        scalars: {
          ID: { input: 'string', output: 'string' },
          DateTime: 'Date',
          Cents: 'number',
        },
        avoidOptionals: { field: true, inputValue: false, object: true, defaultValue: true },
      },
    },
  },
}

export default config
